// Assertions. One work-item reads one bool; `message` is the index of what rust/runtime/faults.rs says where it is
// false.
__kernel void assert_true(__global const uchar *condition, ulong condition_offset, long message, __global uchar *faults,
                          ulong faults_offset) {
  if (condition[condition_offset] == 0) report_fault(faults + faults_offset, FAULT_ASSERTION, message, 0);
}
