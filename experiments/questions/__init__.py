"""Five questions about the theorem, each answered by an experiment: `python -m experiments.questions NAME`.

Each module has `run(quick)`, which returns a dictionary of numbers; the command writes it to results/NAME.json with where
it came from. docs/questions.md explains, figures.py draws, and both read nothing but these files.
"""
