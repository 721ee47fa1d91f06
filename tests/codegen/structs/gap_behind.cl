typedef struct {
  long step;
  int count;
} Walk;
SHARED(Walk, 16);
