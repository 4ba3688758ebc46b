"""What tests of spotd and of its providers share: a clock to step, a cloud that takes orders, the provider contract."""
