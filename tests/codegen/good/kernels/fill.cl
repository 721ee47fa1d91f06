// One parameter of each kind; `in` the comment (is not a parameter.
__kernel GROUPS_OF(LSIZE) void fill(__global uchar *out, ulong out_offset, int out_dtype, const Layout layout, T value,
                                    RANGE_ARGUMENTS, int mode, __local T *line, __global const uchar *table, Unshared rest,
                                    TEXT_PARAMETERS) {
  store(out + out_offset, first, out_dtype, value);
}

__kernel void swap(__global uchar *a, __global uchar *b) {}

// Has the same parameters as another kernel.
__kernel void swap_back(__global uchar *a, __global uchar *b) {}

// A macro determines the number of its buffers.
#define OPERANDS __global uchar *out INPUTS(DECLARED)
__kernel void listed(long count, OPERANDS) {}
