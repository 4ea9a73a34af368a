"""Training with Lightning: the module, its learning rate schedules, and the callbacks around its steps."""
