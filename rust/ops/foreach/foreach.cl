// A pointwise op on several tensors of lists in one launch. Comes after pointwise.cl, whose switch it uses, and
// multi_tensor.cl in the source.

#ifndef LSIZE
#define LSIZE 1
#endif

// mod.rs writes the same struct.
typedef struct {
  T parameters[4];
  T scalars[TENSORS];  // an input or the first parameter, for each tensor
  int dtypes[MAX_OPERANDS];  // of the output and the inputs
  int op;
  int sources;
  int has_parameters;  // `scalars` are the first parameter
} ForeachLaunch;

__kernel GROUPS_OF(LSIZE) void foreach(ForeachLaunch launch, MULTI_TENSOR_ARGUMENTS) {
  TENSOR_CHUNK(table, s, n, start, end);
  const T scalar = TENSOR_SCALAR(launch.scalars, s), parameter = launch.has_parameters ? scalar : launch.parameters[0];
  for (long first = start + get_local_id(0) * VEC; first < end; first += LSIZE * VEC) {
    TV a = C(0), b = C(0), c = C(0), d = C(0);
#define LOAD(k, DTYPE) \
  load_dense(TENSOR_START(table, s, k + 1), first, n, false, DTYPE, (SOURCES >> (2 * k)) & 3, scalar)
    a = LOAD(0, DTYPE0);
    b = LOAD(1, DTYPE1);
    c = LOAD(2, DTYPE2);
#undef LOAD
    store_dense(
        TENSOR_START(table, s, 0), first, n, false, DTYPE_OUT,
        apply(OP, DTYPE_OUT, a, b, c, d, parameter, launch.parameters[1], launch.parameters[2], launch.parameters[3]));
  }
}
