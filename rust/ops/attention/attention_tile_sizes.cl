// Sizes that follow from the constants of attention_tile.cl.

#define INPUT_DTYPE SPEC_DTYPE0
#define QUERIES (SUB_GROUPS * TILE)
#define ITEMS (SUB_GROUPS * TILE_LANES)
#define KEY_TILES (KEYS / TILE)
#define WIDTH_TILES (WIDTH / TILE)
#define TILES (1 + (KEY_TILES > WIDTH_TILES ? KEY_TILES : WIDTH_TILES))
#define ROW_CHUNKS (WIDTH / CHUNK)
// uint4s of a block of queries, and of one of keys or of values.
#define QUERY_CHUNKS (QUERIES * ROW_CHUNKS)
#define BLOCK_CHUNKS (KEYS * ROW_CHUNKS)
// Keys and values come after the queries, or replace them.
#define FIRST_KEYS (RELOADS_QUERIES ? QUERY_CHUNKS : 0)
#define MEMORY (FIRST_KEYS + 2 * BLOCK_CHUNKS > QUERY_CHUNKS ? FIRST_KEYS + 2 * BLOCK_CHUNKS : QUERY_CHUNKS)
// Chunks that an item copies.
#define COPIES ((BLOCK_CHUNKS + ITEMS - 1) / ITEMS)
// Groups of copies that are not finished.
#define STAGES 2
