// Makes ATen compute only in the calling thread.
#pragma once

namespace torch_opencl {

// During its lifetime, ATen's CPU functions in this thread do not use other threads: waking one takes some 20 us, which
// is longer than a call with few elements takes.
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
