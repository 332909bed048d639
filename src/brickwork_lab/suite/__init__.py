"""Eight real image tasks and the networks fine-tuned on them, for every study that merges, cuts or continues over tasks."""
