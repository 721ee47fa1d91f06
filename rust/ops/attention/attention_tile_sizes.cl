// Sizes that follow from the constants of attention_tile.cl and attention_tile_backward.cl: a group owns OWN_ROWS
// queries (or keys), and takes STEP_ROWS keys (or queries) at a time.

#define INPUT_DTYPE SPEC_DTYPE0
#define OWN_ROWS (SUB_GROUPS * TILE)
#define ITEMS (SUB_GROUPS * TILE_LANES)
#define STEP_TILES (STEP_ROWS / TILE)
#define WIDTH_TILES (WIDTH / TILE)
#define TILES (1 + (STEP_TILES > WIDTH_TILES ? STEP_TILES : WIDTH_TILES))
#define ROW_CHUNKS (WIDTH / CHUNK)
// uint4s of a block of the group's own rows, and of one of the rows of a step.
#define OWN_CHUNKS (OWN_ROWS * ROW_CHUNKS)
#define STEP_CHUNKS (STEP_ROWS * ROW_CHUNKS)
// Chunks of a step's block that an item copies.
#define COPIES ((STEP_CHUNKS + ITEMS - 1) / ITEMS)
// Groups of copies that are not finished.
#define STAGES 2
