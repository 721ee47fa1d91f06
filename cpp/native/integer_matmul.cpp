// Matmuls with 8-bit and 4-bit integers: of two such matrices, and of floats with a quantised weight.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/_weight_int8pack_mm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <algorithm>

#include "cpu/cpu_call.h"
#include "native/check.h"
#include "native/matmul.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/blas/mod.rs.h"
#include "torch_opencl/rust/ops/quantized/mod.rs.h"

namespace torch_opencl::native {
namespace {

void check_bytes(const at::Tensor& self, const at::Tensor& mat2) {
  constexpr const char* op = "_int_mm";
  TORCH_CHECK(self.dim() == 2, op, ": Expected self to be of dimension 2 but got ", self.dim());
  TORCH_CHECK(mat2.dim() == 2, op, ": Expected mat2 to be of dimension 2 but got ", mat2.dim());
  TORCH_CHECK(
      self.size(1) == mat2.size(0), op, ": self.size(1) needs to match mat2.size(0) but got ", self.size(1), " and ",
      mat2.size(0));
  TORCH_CHECK(
      self.scalar_type() == at::kChar || self.scalar_type() == at::kByte, op,
      ": Expected self dtype to be int8 or uint8 but got ", self.scalar_type());
  TORCH_CHECK(
      mat2.scalar_type() == at::kChar, op, ": Expected mat2 dtype to be of type int8 but got ", mat2.scalar_type());
}

// Operand A of a matmul with a packed weight.
void check_floats(const char* op, const at::Tensor& self) {
  TORCH_CHECK(
      self.is_floating_point() && self.scalar_type() != at::kDouble, op,
      " : expect A to be either 32-bit or 16-bit float tensor.");
  TORCH_CHECK(self.dim() == 2, op, " : expect A to be 2D tensor.");
}

// The matrix with rows that begin at multiples of 16 bytes, and zeros after them.
at::Tensor in_whole_rows(const at::Tensor& matrix) {
  constexpr int64_t kBytes = 16;
  const int64_t columns = matrix.size(1), padded = (columns + kBytes - 1) / kBytes * kBytes;
  if (columns == padded && matrix.is_contiguous() && matrix.storage_offset() % kBytes == 0) return matrix;
  at::Tensor rows = at::empty({matrix.size(0), padded}, matrix.options());
  rows.narrow(1, 0, columns).copy_(matrix);
  rows.narrow(1, columns, padded - columns).zero_();
  return rows;
}

// If the device has no instructions for int8, sums are in float32, which is exact as long as they stay within 2^24:
// kernels would compute int32 in 64 bits, which GPUs multiply in several instructions.
at::Tensor product_of_bytes(const at::Tensor& self, const at::Tensor& mat2) {
  const bool is_signed = self.scalar_type() == at::kChar;
  // A product is at most 2^14, or below 2^15 if one of the two is unsigned.
  const int64_t longest = int64_t{1} << (is_signed ? 10 : 9), k = self.size(1);
  // Kernels read both operands in one dtype.
  const at::Tensor a = is_signed ? self : self.to(at::kShort), b = is_signed ? mat2 : mat2.to(at::kShort);
  const at::DimVector sizes{self.size(0), mat2.size(1)};
  if (is_signed && c10::multiply_integers(sizes) > 0) {
    const at::Tensor out = at::empty(sizes, self.options().dtype(at::kInt));
    if (checked([&] { return bridge::int8_product(arg(out), arg(self), arg(mat2)); })) return out;
    if (checked([&] { return bridge::has_int8_instructions(arg(out), k); })) {
      // They load neighbouring terms of a sum together.
      const at::Tensor rows = in_whole_rows(self), columns = in_whole_rows(mat2.t()).t();
      if (checked([&] { return bridge::int8_product(arg(out), arg(rows), arg(columns)); })) return out;
    }
  }
  at::Tensor part = at::empty(sizes, self.options().dtype(at::kFloat)), sums;
  for (int64_t first = 0; first < k; first += longest) {
    const int64_t terms = std::min(longest, k - first);
    multiply(part, a.narrow(1, first, terms), b.narrow(0, first, terms), {}, 0, 1);
    sums = sums.defined() ? sums.add_(part.to(at::kInt)) : part.to(at::kInt);
  }
  return sums.defined() ? sums : at::zeros(sizes, self.options().dtype(at::kInt));
}

} // namespace

at::Tensor int_mm(const at::Tensor& self, const at::Tensor& mat2) {
  // The CPU's own function uses instructions for dot products of bytes, which OpenCL C cannot express.
  if (cpu_policy::runs_on_cpu(CpuCalls::Always, self)) return call_on_host<at::_ops::_int_mm>(self, mat2);
  check_bytes(self, mat2);
  return product_of_bytes(self, mat2);
}

at::Tensor& int_mm_out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  constexpr const char* op = "_int_mm";
  check_bytes(self, mat2);
  TORCH_CHECK(
      out.scalar_type() == at::kInt, op, ": Expected result dtype to be of type kInt but got ", out.scalar_type());
  TORCH_CHECK(out.dim() == 2, op, ": Expected result to be of dimension 2 but got ", out.dim());
  TORCH_CHECK(
      out.size(0) == self.size(0), op, ": Expected result.size(0) to be ", self.size(0), " but got ", out.size(0));
  TORCH_CHECK(
      out.size(1) == mat2.size(1), op, ": Expected result.size(1) to be ", mat2.size(1), " but got ", out.size(1));
  return out.copy_(native::int_mm(self, mat2));
}

// self @ mat2.T * scales, with a scale for each row of the weight.
at::Tensor weight_int8pack_mm(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& scales) {
  // ATen's function for the CPU is vectorised only for bfloat16, and reads past the end of rows that are not whole
  // vectors; for float32 it takes 175 ms, and a matmul 2 ms (128 x 1024 x 1024, PoCL, 2 cores).
  constexpr int64_t kVectors = 64;
  const bool has_vectors = self.scalar_type() == at::kBFloat16 && self.dim() == 2 && self.size(1) % kVectors == 0;
  if (has_vectors && cpu_policy::runs_on_cpu(CpuCalls::Always, self))
    return call_on_host<at::_ops::_weight_int8pack_mm>(self, mat2, scales);
  // Columns that the kernel for few rows unpacks together.
  constexpr int64_t kChunk = 32;
  constexpr const char* op = "_weight_int8pack_mm";
  check_floats(op, self);
  TORCH_CHECK(mat2.scalar_type() == at::kChar, op, " : expect B to be int8 tensor.");
  TORCH_CHECK(mat2.dim() == 2 && mat2.size(1) == self.size(1), op, " : expect B.size(1) == ", self.size(1));
  TORCH_CHECK(
      scales.dim() == 1 && scales.size(0) == mat2.size(0), op, " : expect scales to be 1d tensor with size ",
      mat2.size(0));
  TORCH_CHECK(
      scales.scalar_type() == self.scalar_type(), "expected scalar type ", self.scalar_type(), " but found ",
      scales.scalar_type());
  at::Tensor out = at::empty({self.size(0), mat2.size(0)}, self.options());
  const at::Tensor x = self.contiguous(), weight = mat2.contiguous(), factors = scales.contiguous();
  const int64_t rows = weight.size(0), k = weight.size(1);
  const bridge::QuantizedWeight packed{arg(weight), arg(factors), {}, {}, "affine8", rows, k, k, 0, "absent"};
  if (k > 0 && k % kChunk == 0 && checked([&] { return bridge::quantized_few_rows(arg(out), arg(x), packed); }))
    return out;
  const at::Tensor sums = at::empty(out.sizes(), out.options().dtype(at::kFloat));
  // Every floating dtype represents int8 exactly.
  multiply(sums, x, weight.to(self.scalar_type()).t(), {}, 0, 1);
  return at::mul_out(out, sums, factors);
}

// Weights of 4 bits are packed by tiles of 8 rows and 16 columns, two tiles along k to an int32, `innerKTiles` side by
// side: the layout of CUDA, [n / 8][k / (innerKTiles * 16)][32][innerKTiles / 2], in which each of 32 threads finds the
// part of operand B that a tensor core asks it for. MPS has the same shape, and another order.
//
// Thread 4 * row + pair has columns 2 * pair, 2 * pair + 1, 2 * pair + 8 and 2 * pair + 9 of two tiles, the even ones
// in the lower half of the int32.
at::Tensor convert_weight_to_int4pack(const at::Tensor& self, int64_t inner_k_tiles) {
  constexpr const char* op = "_convert_weight_to_int4pack";
  TORCH_CHECK(self.dim() == 2, op, " : expect weight to be 2D tensor.");
  TORCH_CHECK(self.scalar_type() == at::kByte, op, " : expect weight to be kByte.");
  TORCH_CHECK(
      inner_k_tiles == 2 || inner_k_tiles == 4 || inner_k_tiles == 8, op, " : innerKTiles need to be 2, 4, or 8, got ",
      inner_k_tiles);
  const int64_t columns = self.size(1) * 2, width = inner_k_tiles * 16;
  TORCH_CHECK(self.size(0) % 8 == 0, op, " : expect N to be dividable by 8, got ", self.size(0));
  TORCH_CHECK(columns % width == 0, op, " : expect K to be dividable by ", width, ", got ", columns);
  const int64_t rows = self.size(0) / 8, outer = columns / width, pairs = inner_k_tiles / 2;
  const at::Tensor given = self.reshape({rows, 8, outer, pairs, /*tile=*/2, /*half=*/2, /*pair=*/4});
  // An input byte has the even column in its upper half: a last dimension of two columns.
  const at::Tensor values = at::stack({given.bitwise_right_shift(4), given.bitwise_and(15)}, -1)
                                .permute({0, 2, 1, 6, 3, 7, 4, 5})
                                .contiguous();
  const at::Tensor bytes = values.select(-1, 0).bitwise_or(values.select(-1, 1).bitwise_left_shift(4));
  return bytes.reshape({rows, outer, 32, pairs * 4}).view(at::kInt);
}

// self @ weight.T, where the weight is (value - 8) * scale + zero, with a scale and a zero for each `qGroupSize` values
// of a row: `qScaleAndZeros` [k / qGroupSize, n, 2].
at::Tensor weight_int4pack_mm(
    const at::Tensor& self, const at::Tensor& mat2, int64_t q_group_size, const at::Tensor& scales_and_zeros) {
  constexpr const char* op = "_weight_int4pack_mm";
  check_floats(op, self);
  TORCH_CHECK(mat2.scalar_type() == at::kInt, op, " : expect B to be int32 tensor.");
  TORCH_CHECK(mat2.is_contiguous(), op, " : expect B to be contiguous.");
  TORCH_CHECK(mat2.dim() == 4 && mat2.size(2) == 32, op, " : expect B to 4d tensor.");
  const int64_t rows = mat2.size(0) * 8, columns = mat2.size(1) * mat2.size(3) * 32;
  TORCH_CHECK(self.size(1) == columns, op, " : expect A.size(1) to be ", columns, ", got ", self.size(1));
  TORCH_CHECK(
      q_group_size == 32 || q_group_size == 64 || q_group_size == 128 || q_group_size == 256, op,
      ": expect qGroupSize to be 32, 64, 128 or 256, got ", q_group_size);
  TORCH_CHECK(columns % q_group_size == 0, op, ": expect qGroupSize to divide ", columns, ", got ", q_group_size);
  check_sizes(op, "qScaleAndZeros", scales_and_zeros, {columns / q_group_size, rows, 2});
  check_dtype(op, "qScaleAndZeros", scales_and_zeros, self.scalar_type());
  at::Tensor out = at::empty({self.size(0), rows}, self.options());
  const at::Tensor x = self.contiguous();
  const at::Tensor scales = scales_and_zeros.select(-1, 0).t(), zeros = scales_and_zeros.select(-1, 1).t();
  const bridge::QuantizedWeight packed{arg(mat2), arg(scales), arg(zeros),   {},         "tiles4",
                                       rows,      columns,     q_group_size, /*bias=*/8, "values"};
  if (checked([&] { return bridge::quantized_few_rows(arg(out), arg(x), packed); })) return out;
  const at::Tensor weight = at::empty({rows, columns}, self.options());
  checked([&] { bridge::quantized_unpack(arg(weight), packed); });
  multiply(out, x, weight.t(), {}, 0, 1);
  return out;
}

} // namespace torch_opencl::native
