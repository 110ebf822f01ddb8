"""The errors of corestream. A wrong argument in the library is a plain ValueError or TypeError; these are for what lies outside it."""


class CorestreamError(Exception):
    """The base of every error that a file, a configuration or a run can cause. The command line prints it without a traceback."""


class DataError(CorestreamError):
    """A dataset's file is missing, damaged or not what its name says."""


class ConfigError(CorestreamError, ValueError):
    """A name, an option or a hyperparameter that does not exist or is out of range."""


class NonFiniteError(CorestreamError, ArithmeticError):
    """An input, a loss or a gradient is NaN or infinite where no defined behaviour is left."""


class RunError(CorestreamError):
    """A run, a checkpoint or a study that cannot go on: torn, foreign, locked, failed."""


class CorestreamWarning(UserWarning):
    """Something was left out or is not as asked for, and the rest goes on. The command line prints it without the place in the code."""
