__kernel void other(__global uchar *out) {}
