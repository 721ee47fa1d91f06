__kernel void fill(__global uchar *out, ulong out_offset, VALUE_ARGUMENTS) {}
