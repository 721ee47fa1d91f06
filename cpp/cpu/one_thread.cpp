#include "cpu/one_thread.h"

#include <ATen/Parallel.h>

// From the libraries that libtorch was built with and ships. Null if it was built without them.
extern "C" {
[[gnu::weak]] void omp_set_num_threads(int threads);
[[gnu::weak]] int MKL_Set_Num_Threads_Local(int threads);
}

namespace torch_opencl {

// at::set_num_threads would change the number for all threads. ATen reads the user's number when a thread first
// computes, so get_num_threads is called first.
OneThread::OneThread() : threads_(at::get_num_threads()) {
  if (threads_ == 1) return;
  if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
  // MKL has a separate number of threads if the user has set one for MKL.
  if (MKL_Set_Num_Threads_Local != nullptr) mkl_threads_ = MKL_Set_Num_Threads_Local(1);
}

OneThread::~OneThread() {
  if (threads_ == 1) return;
  if (omp_set_num_threads != nullptr) omp_set_num_threads(threads_);
  if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(mkl_threads_);
}

} // namespace torch_opencl
