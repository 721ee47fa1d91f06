//! Layers of networks that alternate matmuls and other kernels: one call from C++ enqueues all steps.

mod rnn;
