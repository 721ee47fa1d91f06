// Work of the calling thread alone.
#pragma once

namespace torch_opencl {

// While one lives, ATen's functions for the CPU share no work of this thread: waking another one takes some 20 us,
// which is longer than a call with few elements takes.
class OneThread {
 public:
  OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread();

 private:
  int threads_;
  int mkl_threads_ = 0;
};

} // namespace torch_opencl
