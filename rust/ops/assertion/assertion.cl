// Assertions. One work-item reads one bool. If it is false, `message` is the index of the error message in
// rust/runtime/faults.rs.
__kernel void assert_true(__global const uchar *condition, ulong condition_offset, long message, __global uchar *faults,
                          ulong faults_offset) {
  if (condition[condition_offset] == 0) report_fault(faults + faults_offset, FAULT_ASSERTION, message, 0);
}
