typedef struct {
  long sizes[2];
} Layout;
SHARED(Layout, 16);

#define RANGE_ARGUMENTS \
  long first,           \
      long last

typedef struct {
  T values[4];
} Unshared;
