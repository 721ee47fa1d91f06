// The matmuls of the stub of cuBLASLt: loops over column-major matrices.
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
  int64_t leading, batch_stride;
  bool is_transposed;

  int64_t offset(int batch, int64_t row, int64_t column) const {
    return batch * batch_stride + (is_transposed ? column + row * leading : row + column * leading);
  }
};

/// `d = alpha * a @ b + beta * c + bias`, column-major; the bias has a value for each row.
struct Gemm {
  int64_t rows, columns, k;
  int batches;
  Operand a, b, c, d;
  const void* bias;
};

template <typename In, typename Sum, typename Out>
void multiply(const Gemm& gemm, Sum alpha, Sum beta) {
  auto element = [](const Operand& matrix, int batch, int64_t row, int64_t column) {
    return Sum(static_cast<const In*>(matrix.first)[matrix.offset(batch, row, column)]);
  };
  for (int batch = 0; batch < gemm.batches; ++batch) {
    for (int64_t column = 0; column < gemm.columns; ++column) {
      for (int64_t row = 0; row < gemm.rows; ++row) {
        Sum sum(0);
        for (int64_t i = 0; i < gemm.k; ++i) sum += element(gemm.a, batch, row, i) * element(gemm.b, batch, i, column);
        sum = alpha * sum;
        const Operand& c = gemm.c;
        if (beta != Sum(0)) sum += beta * Sum(static_cast<const Out*>(c.first)[c.offset(batch, row, column)]);
        if (gemm.bias != nullptr) sum += Sum(static_cast<const Out*>(gemm.bias)[row]);
        Out* out = static_cast<Out*>(const_cast<void*>(gemm.d.first));
        out[gemm.d.offset(batch, row, column)] = sum;
      }
    }
  }
}

using Command = std::function<void()>;

template <typename In, typename Sum, typename Out = In>
Command command(const Gemm& gemm, const void* alpha, const void* beta) {
  return [gemm, factor = *static_cast<const Sum*>(alpha), kept = *static_cast<const Sum*>(beta)] {
    multiply<In, Sum, Out>(gemm, factor, kept);
  };
}

}  // namespace
