__kernel void copy(__global const uchar *in, ulong in_offset, long count) {}
