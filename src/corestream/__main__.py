"""`python -m corestream`: the command line where its script is not on the path."""

from corestream.cli import main

main()
