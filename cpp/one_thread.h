// Work of the calling thread alone.
#pragma once

// Of the libraries that libtorch was built with, which it brings along; absent where it was built without them.
extern "C" {
[[gnu::weak]] int omp_get_max_threads();
[[gnu::weak]] void omp_set_num_threads(int threads);
[[gnu::weak]] int MKL_Set_Num_Threads_Local(int threads);
}

namespace torch_opencl {

// While one lives, ATen's functions for the CPU share no work of this thread: waking another one takes some 20 us,
// which is longer than a call with few elements takes.
class OneThread {
 public:
  OneThread() {
    if (omp_set_num_threads != nullptr && omp_get_max_threads != nullptr) {
      threads_ = omp_get_max_threads();
      omp_set_num_threads(1);
    }
    // Where the user has set a number, MKL has it for itself.
    if (MKL_Set_Num_Threads_Local != nullptr) mkl_threads_ = MKL_Set_Num_Threads_Local(1);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() {
    if (threads_ > 0) omp_set_num_threads(threads_);
    if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(mkl_threads_);
  }

 private:
  int threads_ = 0;
  int mkl_threads_ = 0;
};

} // namespace torch_opencl
