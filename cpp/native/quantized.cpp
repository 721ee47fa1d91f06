// Weights of 2 to 8 bits in the formats of other libraries: torch.ops.torch_opencl.quantized_linear and
// quantized_unpack. torch_opencl.quantized describes the formats.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>
#include <array>
#include <string_view>

#include "native/check.h"
#include "native/matmul.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/quantized/mod.rs.h"

namespace torch_opencl::native {
namespace {

// A format: its number in formats.cl, the columns that a block has, and the bytes of the block.
struct Format {
  std::string_view name;
  int32_t code;
  int64_t columns;
  int64_t bytes;
};

// Those up to 100 have their scales in the blocks.
constexpr std::array kFormats{
    Format{"q4_0", 2, 32, 18},      Format{"q4_1", 3, 32, 20},      Format{"q5_0", 6, 32, 22},
    Format{"q5_1", 7, 32, 24},      Format{"q8_0", 8, 32, 34},      Format{"q2_k", 10, 256, 84},
    Format{"q3_k", 11, 256, 110},   Format{"q4_k", 12, 256, 144},   Format{"q5_k", 13, 256, 176},
    Format{"q6_k", 14, 256, 210},   Format{"iq4_nl", 20, 32, 18},   Format{"table4", 100, 32, 16},
    Format{"affine4", 101, 32, 16}, Format{"affine8", 102, 32, 32},
};
constexpr int32_t kTable4 = 100;
constexpr int64_t kTableValues = 16, kNestedValues = kTableValues + 256 + 1, kNestedBlock = 256;

const Format& format_named(const char* op, const std::string& name) {
  for (const Format& format : kFormats) {
    if (format.name == name) return format;
  }
  std::string names;
  for (const Format& format : kFormats) names.append(names.empty() ? "" : ", ").append(format.name);
  TORCH_CHECK(false, op, ": unknown format '", name, "': the formats are ", names);
}

// The arguments that both operators share. Owns the tensors, dense.
class Weight {
 public:
  Weight(
      const char* op,
      const at::Tensor& weight,
      const std::optional<at::Tensor>& scales,
      const std::optional<at::Tensor>& zeros,
      const std::optional<at::Tensor>& table,
      const std::string& name,
      int64_t rows,
      int64_t k,
      int64_t group_size,
      int64_t bias,
      const std::string& zeros_kind)
      : codes_(weight.contiguous()) {
    const Format& format = format_named(op, name);
    const auto bytes = static_cast<int64_t>(codes_.nbytes());
    TORCH_CHECK(rows >= 0 && k > 0, op, ": expected a weight of at least 0 x 1, got ", rows, " x ", k);
    TORCH_CHECK(
        k % format.columns == 0, op, ": a row of format '", name, "' has a multiple of ", format.columns,
        " columns, got ", k);
    const int64_t expected = rows * (k / format.columns) * format.bytes;
    TORCH_CHECK(
        bytes == expected, op, ": a weight of ", rows, " x ", k, " in format '", name, "' has ", expected,
        " bytes, got ", bytes, " (shape ", codes_.sizes(), ")");
    value_.format = format.code;
    value_.rows = rows;
    value_.k = k;
    value_.bias = static_cast<int32_t>(bias);
    value_.group_size = group_size;
    scales_ = zeros_ = table_ = codes_;
    if (format.code >= kTable4) {
      separate(op, format, scales, zeros, table, zeros_kind);
    } else {
      TORCH_CHECK(!scales && !zeros && !table, op, ": format '", name, "' has its scales in the weight");
    }
    for (const at::Tensor* tensor : {&scales_, &zeros_, &table_}) {
      TORCH_CHECK(
          tensor->device() == codes_.device(), op, ": expected all tensors on ", codes_.device(), ", got one on ",
          tensor->device());
    }
    value_.codes = arg(codes_);
    value_.scales = arg(scales_);
    value_.zeros = arg(zeros_);
    value_.table = arg(table_);
  }

  const bridge::QuantizedWeight& value() const {
    return value_;
  }

 private:
  void separate(
      const char* op,
      const Format& format,
      const std::optional<at::Tensor>& scales,
      const std::optional<at::Tensor>& zeros,
      const std::optional<at::Tensor>& table,
      const std::string& zeros_kind) {
    const auto [rows, k, group] = std::tuple(value_.rows, value_.k, value_.group_size);
    TORCH_CHECK(scales.has_value(), op, ": format '", format.name, "' needs scales");
    const bool is_power = group >= 32 && (group & (group - 1)) == 0;
    TORCH_CHECK(
        is_power || group == k, op, ": expected a group size of 32, 64, 128 or another power of two, or ", k,
        " (a row), got ", group);
    scales_ = scales->contiguous();
    TORCH_CHECK(scales_.is_floating_point(), op, ": expected scales to be floats, got ", scales_.scalar_type());
    TORCH_CHECK(
        (format.code == kTable4) == table.has_value(), op, ": format 'table4' needs a table, and others have none");
    if (table) {
      check_dtype(op, "table", *table, at::kFloat);
      check_dtype(op, "scales", scales_, at::kFloat);
      table_ = table->contiguous();
      const int64_t blocks = (rows * k + group - 1) / group;
      TORCH_CHECK(is_power, op, ": expected a block size that is a power of two from 32 on, got ", group);
      value_.is_nested = zeros.has_value();
      const int64_t values = value_.is_nested ? kNestedValues : kTableValues;
      TORCH_CHECK(table_.numel() == values, op, ": expected a table of ", values, " values, got ", table_.numel());
      const int64_t wanted = value_.is_nested ? (blocks + kNestedBlock - 1) / kNestedBlock : blocks;
      TORCH_CHECK(
          scales_.numel() == wanted, op, ": expected ", wanted, " scales for blocks of ", group, ", got ",
          scales_.numel());
      if (zeros) {
        zeros_ = zeros->contiguous();
        check_dtype(op, "nested scales", zeros_, at::kByte);
        TORCH_CHECK(zeros_.numel() == blocks, op, ": expected ", blocks, " nested scales, got ", zeros_.numel());
      }
      return;
    }
    const int64_t groups = is_power ? k / group : 1;
    TORCH_CHECK(!is_power || k % group == 0, op, ": expected groups of ", group, " to divide a row of ", k);
    // [rows, groups], or groups first.
    const bool groups_first = scales_.dim() == 2 && scales_.size(0) == groups && scales_.size(1) == rows;
    const bool rows_first = scales_.numel() == rows * groups && (scales_.dim() == 1 || scales_.size(0) == rows);
    TORCH_CHECK(
        groups_first || rows_first, op, ": expected scales of shape [", rows, ", ", groups, "] or [", groups, ", ",
        rows, "], got ", scales_.sizes());
    // A row whose length is no power of two is one group: the kernel shifts by the logarithm.
    if (!is_power) value_.group_size = int64_t{1} << 40;
    value_.scale_row = rows_first ? groups : 1;
    value_.scale_group = rows_first ? 1 : rows;
    TORCH_CHECK(
        zeros.has_value() == (zeros_kind != "absent"), op, ": zeros_kind '", zeros_kind,
        "' does not fit the argument zeros");
    if (zeros) {
      zeros_ = zeros->contiguous();
      TORCH_CHECK(
          zeros_.sizes() == scales_.sizes(), op, ": expected zeros of shape ", scales_.sizes(), ", got ",
          zeros_.sizes());
      TORCH_CHECK(
          zeros_kind == "codes" || zeros_kind == "values", op,
          ": expected zeros_kind 'absent', 'codes' or 'values', got '", zeros_kind, "'");
      value_.zeros_kind = zeros_kind == "codes" ? 1 : 2;
    }
  }

  at::Tensor codes_, scales_, zeros_, table_;
  bridge::QuantizedWeight value_{};
};

void check_floats(const char* op, const char* name, at::ScalarType dtype) {
  TORCH_CHECK(
      dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16, op, ": expected ", name,
      " to be float32, float16 or bfloat16, got ", dtype);
}

at::Tensor unpacked(const Weight& weight, const at::TensorOptions& options) {
  const at::Tensor out = at::empty({weight.value().rows, weight.value().k}, options);
  checked([&] { bridge::quantized_unpack(arg(out), weight.value()); });
  return out;
}

at::Tensor quantized_unpack(
    const at::Tensor& weight,
    const std::optional<at::Tensor>& scales,
    const std::optional<at::Tensor>& zeros,
    const std::optional<at::Tensor>& table,
    const std::string& format,
    int64_t rows,
    int64_t k,
    int64_t group_size,
    int64_t bias,
    const std::string& zeros_kind,
    at::ScalarType dtype) {
  constexpr const char* op = "quantized_unpack";
  check_floats(op, "the dtype", dtype);
  return unpacked(
      {op, weight, scales, zeros, table, format, rows, k, group_size, bias, zeros_kind}, weight.options().dtype(dtype));
}

at::Tensor quantized_linear(
    const at::Tensor& x,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& scales,
    const std::optional<at::Tensor>& zeros,
    const std::optional<at::Tensor>& table,
    const std::string& format,
    int64_t rows,
    int64_t k,
    int64_t group_size,
    int64_t bias,
    const std::string& zeros_kind) {
  constexpr const char* op = "quantized_linear";
  check_floats(op, "x", x.scalar_type());
  TORCH_CHECK(x.dim() > 0 && x.size(-1) == k, op, ": expected x with ", k, " columns, got shape ", x.sizes());
  TORCH_CHECK(x.device() == weight.device(), op, ": expected x on ", weight.device(), ", got ", x.device());
  const Weight packed(op, weight, scales, zeros, table, format, rows, k, group_size, bias, zeros_kind);
  at::DimVector sizes(x.sizes());
  sizes.back() = rows;
  const at::Tensor dense = x.reshape({-1, k}).contiguous();
  const at::Tensor out = at::empty({dense.size(0), rows}, x.options());
  if (!checked([&] { return bridge::quantized_few_rows(arg(out), arg(dense), packed.value()); })) {
    multiply(out, dense, unpacked(packed, x.options()).t(), {}, 0, 1);
  }
  return out.view(sizes);
}

} // namespace

#define TORCH_OPENCL_WEIGHT                                                                                    \
  "Tensor weight, Tensor? scales, Tensor? zeros, Tensor? table, str format, int rows, int k, int group_size, " \
  "int bias, str zeros_kind"

TORCH_LIBRARY_FRAGMENT(torch_opencl, m) {
  m.def("quantized_linear(Tensor x, " TORCH_OPENCL_WEIGHT ") -> Tensor");
  m.def("quantized_unpack(" TORCH_OPENCL_WEIGHT ", ScalarType dtype) -> Tensor");
}

TORCH_LIBRARY_IMPL(torch_opencl, PrivateUse1, m) {
  m.impl("quantized_linear", &quantized_linear);
  m.impl("quantized_unpack", &quantized_unpack);
}

} // namespace torch_opencl::native
