"""What can be known of the kernels on GPUs without one: they are compiled for some. See docs/gpus.md."""
