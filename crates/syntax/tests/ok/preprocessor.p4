// Includes and macros; the preprocessor's own tests are in src/preprocess/tests.rs.
#include <core.p4>
#include "../include/fields.p4"
#define FIELD(width, name) bit<width> name;
#define LAST 1
#define WIDTHS(m) \
    m(8, a) \
    m(16, b)
struct s_t {
    WIDTHS(FIELD)
#if LAST && !defined(NOT_THIS)
    bit<4> last;
#else
    syntax error
#endif
    SHARED_FIELD
}
