// The op and the dtypes of a launch: constants of a specialised program (tier 1), arguments of the same kernels in a
// generic one (tier 0). A kernel that uses an upper-case name has an argument with the lower-case name.

#ifdef SPEC_OP
#define OP SPEC_OP
#else
#define OP op
#endif
#ifdef SPEC_DTYPE0
#define DTYPE0 SPEC_DTYPE0
#else
#define DTYPE0 dtype0
#endif
#ifdef SPEC_DTYPE1
#define DTYPE1 SPEC_DTYPE1
#else
#define DTYPE1 dtype1
#endif
#ifdef SPEC_DTYPE2
#define DTYPE2 SPEC_DTYPE2
#else
#define DTYPE2 dtype2
#endif
