__kernel void half_done(__global uchar *out
