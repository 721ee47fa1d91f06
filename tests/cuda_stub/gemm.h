// The matmuls of the stub of cuBLAS: loops over column-major matrices.
#pragma once

#include <complex>
#include <cstdint>
#include <cstring>
#include <functional>

namespace {

struct BFloat16 {
  uint16_t bits;
  operator float() const {
    uint32_t wide = uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
  BFloat16& operator=(float value) {
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof(wide));
    bits = uint16_t((wide + 0x7FFF + (wide >> 16 & 1)) >> 16);
    return *this;
  }
};

struct Operand {
  const void* first;
  int leading;
  long long batch_stride;
  bool is_transposed;
};

struct Gemm {
  int rows, columns, k, batches;
  Operand a, b;
  void* out;
  int leading;
  long long batch_stride;
};

/// Column-major, as cuBLAS has it.
template <typename T, typename Sum>
void multiply(const Gemm& gemm, Sum alpha, Sum beta) {
  auto element = [](const Operand& matrix, int batch, int64_t row, int64_t column) {
    int64_t offset = matrix.is_transposed ? column + row * matrix.leading : row + column * matrix.leading;
    return Sum(static_cast<const T*>(matrix.first)[batch * matrix.batch_stride + offset]);
  };
  for (int batch = 0; batch < gemm.batches; ++batch) {
    for (int column = 0; column < gemm.columns; ++column) {
      for (int row = 0; row < gemm.rows; ++row) {
        Sum sum(0);
        for (int i = 0; i < gemm.k; ++i) sum += element(gemm.a, batch, row, i) * element(gemm.b, batch, i, column);
        T& out = static_cast<T*>(gemm.out)[batch * gemm.batch_stride + row + int64_t{column} * gemm.leading];
        out = beta == Sum(0) ? alpha * sum : alpha * sum + beta * Sum(out);
      }
    }
  }
}

template <typename T, typename Sum>
std::function<void()> command(const Gemm& gemm, const void* alpha, const void* beta) {
  return [gemm, factor = *static_cast<const Sum*>(alpha), kept = *static_cast<const Sum*>(beta)] {
    multiply<T, Sum>(gemm, factor, kept);
  };
}

}  // namespace
