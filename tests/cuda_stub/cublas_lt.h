// The stub of cuBLASLt: objects with attributes, and a matmul that a stream computes by a loop.
#pragma once

#include <algorithm>
#include <complex>

#include "gemm.h"
#include "stream.h"

namespace {

constexpr Status NOT_INITIALIZED = 1, EXECUTION_FAILED = 13, NOT_SUPPORTED_BY_BLAS = 15;
constexpr int EPILOGUE_DEFAULT = 1, EPILOGUE_BIAS = 4;
constexpr size_t WORKSPACE = 1 << 20;

struct Layout {
  int type;
  int64_t rows, columns, leading, batch_stride;
  int batches;
};

struct Desc {
  int compute, scale;
  int transposes[2];
  int epilogue;
  Address bias;
};

struct Preference {
  uint64_t workspace;
  uint32_t alignments[4];
};

struct Algorithm {
  uint32_t alignments[4];
  uint64_t workspace, rest[5];
};

struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  Status status;
  float waves;
  int reserved[4];
};

template <typename T>
Status assign(T& target, const void* value, size_t size) {
  if (size != sizeof(T)) return INVALID_VALUE;
  std::memcpy(&target, value, size);
  return SUCCESS;
}

using Multiply = Command (*)(const Gemm&, const void* alpha, const void* beta);

/// The function for the dtypes of a matmul, by cudaDataType and cublasComputeType_t; null if there is none.
Multiply find(const Desc& desc, const Layout& a, const Layout& b, const Layout& d) {
  constexpr int COMPUTE_32F = 68, COMPUTE_TF32 = 77, COMPUTE_64F = 70, COMPUTE_32I = 72;
  int compute = desc.compute == COMPUTE_TF32 ? COMPUTE_32F : desc.compute;
  if (a.type == 3 && d.type == 10 && desc.scale == 10 && compute == COMPUTE_32I) {
    bool has_layout = desc.transposes[0] && !desc.transposes[1];
    for (const Layout* layout : {&a, &b, &d}) has_layout = has_layout && layout->rows % 4 == 0 && layout->leading % 4 == 0;
    return has_layout ? command<int8_t, int32_t, int32_t> : nullptr;
  }
  if (a.type != d.type) return nullptr;
  bool is_single = compute == COMPUTE_32F, is_double = compute == COMPUTE_64F;
  if (a.type == 0 && desc.scale == 0 && is_single) return command<float, float>;
  if (a.type == 2 && desc.scale == 0 && is_single) return command<_Float16, float>;
  if (a.type == 14 && desc.scale == 0 && is_single) return command<BFloat16, float>;
  if (a.type == 4 && desc.scale == 4 && is_single) return command<std::complex<float>, std::complex<float>>;
  if (a.type == 1 && desc.scale == 1 && is_double) return command<double, double>;
  if (a.type == 5 && desc.scale == 5 && is_double) return command<std::complex<double>, std::complex<double>>;
  return nullptr;
}

}  // namespace

extern "C" {

Status cublasLtCreate(int** handle) {
  return *handle = new int, current_context == nullptr ? NOT_INITIALIZED : SUCCESS;
}
Status cublasLtDestroy(int* handle) { return delete handle, SUCCESS; }

Status cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  ++live_objects;
  *layout = new Layout{type, int64_t(rows), int64_t(columns), leading, 0, 1};
  return SUCCESS;
}
Status cublasLtMatrixLayoutDestroy(Layout* layout) { return --live_objects, delete layout, SUCCESS; }
Status cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* value, size_t size) {
  if (attribute == 5) return assign(layout->batches, value, size);
  if (attribute == 6) return assign(layout->batch_stride, value, size);
  return INVALID_VALUE;
}

Status cublasLtMatmulDescCreate(Desc** desc, int compute, int scale) {
  return ++live_objects, *desc = new Desc{compute, scale, {0, 0}, EPILOGUE_DEFAULT, 0}, SUCCESS;
}
Status cublasLtMatmulDescDestroy(Desc* desc) { return --live_objects, delete desc, SUCCESS; }
Status cublasLtMatmulDescSetAttribute(Desc* desc, int attribute, const void* value, size_t size) {
  if (attribute == 3 || attribute == 4) return assign(desc->transposes[attribute - 3], value, size);
  if (attribute == 7) return assign(desc->epilogue, value, size);
  if (attribute == 8) return assign(desc->bias, value, size);
  return INVALID_VALUE;
}

// Without attributes, cuBLASLt expects no workspace and the largest alignment.
Status cublasLtMatmulPreferenceCreate(Preference** preference) {
  return ++live_objects, *preference = new Preference{0, {256, 256, 256, 256}}, SUCCESS;
}
Status cublasLtMatmulPreferenceDestroy(Preference* preference) { return --live_objects, delete preference, SUCCESS; }
Status cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* value, size_t size) {
  uint32_t schemes;
  if (attribute == 1) return assign(preference->workspace, value, size);
  // Sums of parts in the result's dtype would be rounded.
  if (attribute == 3) return assign(schemes, value, size) == SUCCESS && schemes == 2 ? SUCCESS : INVALID_VALUE;
  if (attribute >= 5 && attribute <= 8) return assign(preference->alignments[attribute - 5], value, size);
  return INVALID_VALUE;
}

Status cublasLtMatmulAlgoGetHeuristic(int*, Desc* desc, Layout* a, Layout* b, Layout* c, Layout* d,
                                      Preference* preference, int wanted, Heuristic* found, int* count) {
  *count = 0;
  if (current_context == nullptr) return NOT_INITIALIZED;
  int64_t k = desc->transposes[0] ? a->rows : a->columns;
  bool has_sizes = (desc->transposes[0] ? a->columns : a->rows) == d->rows &&
                   (desc->transposes[1] ? b->rows : b->columns) == d->columns &&
                   (desc->transposes[1] ? b->columns : b->rows) == k && c->rows == d->rows && c->columns == d->columns;
  for (Layout* layout : {a, b, c, d})
    has_sizes = has_sizes && layout->leading >= layout->rows && layout->batches == d->batches;
  bool has_types = a->type == b->type && c->type == d->type && find(*desc, *a, *b, *d) != nullptr;
  bool has_epilogue = desc->epilogue == EPILOGUE_DEFAULT || (desc->scale < 2 && !fails("bias"));
  if (wanted < 1 || !has_sizes || !has_types || !has_epilogue || fails("unsupported")) return NOT_SUPPORTED_BY_BLAS;
  size_t workspace = std::min<size_t>(preference->workspace, WORKSPACE);
  *found = {{}, workspace, SUCCESS, 1, {}};
  found->algorithm.workspace = workspace;
  std::copy(preference->alignments, preference->alignments + 4, found->algorithm.alignments);
  return *count = 1, SUCCESS;
}

Status cublasLtMatmul(int*, Desc* desc, const void* alpha, const void* a, Layout* a_layout, const void* b,
                      Layout* b_layout, const void* beta, const void* c, Layout* c_layout, void* d, Layout* d_layout,
                      const Algorithm* algorithm, void* workspace, size_t size, Stream* stream) {
  if (fails("gemm")) return EXECUTION_FAILED;
  if (current_context == nullptr) return NOT_INITIALIZED;
  const void* addresses[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (reinterpret_cast<Address>(addresses[i]) % algorithm->alignments[i] != 0) return EXECUTION_FAILED;
  bool has_workspace = workspace != nullptr && reinterpret_cast<Address>(workspace) % 256 == 0;
  if (size != algorithm->workspace || (size > 0 && !has_workspace)) return EXECUTION_FAILED;
  auto operand = [](const void* first, Layout* layout, int is_transposed) {
    return Operand{first, layout->leading, layout->batch_stride, is_transposed != 0};
  };
  Gemm gemm{d_layout->rows,
            d_layout->columns,
            desc->transposes[0] ? a_layout->rows : a_layout->columns,
            d_layout->batches,
            operand(a, a_layout, desc->transposes[0]),
            operand(b, b_layout, desc->transposes[1]),
            operand(c, c_layout, 0),
            operand(d, d_layout, 0),
            reinterpret_cast<const void*>(desc->bias)};
  bool has_bias = desc->epilogue == EPILOGUE_BIAS;
  if ((gemm.bias != nullptr) != has_bias || desc->bias % 16 != 0) return EXECUTION_FAILED;
  auto found = find(*desc, *a_layout, *b_layout, *d_layout);
  if (found == nullptr || fails("refused") || (has_bias && fails("refused bias"))) return NOT_SUPPORTED_BY_BLAS;
  ++gemms;
  if (has_bias) ++biases;
  if (fails("device")) {
    stream->add([=] { stream->status = LAUNCH_FAILED; });
  } else {
    // A workspace that is in use elsewhere, before or after the matmul, loses its contents.
    stream->add([=, work = found(gemm, alpha, beta)] {
      work();
      if (size > 0) std::memset(workspace, 0xA5, size);
    });
  }
  return SUCCESS;
}

}  // extern "C"
