from corestream.studies import pool
from corestream.studies.config import make_config


def test_the_last_words_of_a_worker_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "PATH_FLAGS", ["-c", "import sys; sys.exit('no room\\n\\n')"])
    (outcome,) = pool.make_runs([make_config("rotated-digits", "finetune")], tmp_path, jobs=1)
    assert outcome.error == "the run's process ended with exit status 1; its last words: no room"
