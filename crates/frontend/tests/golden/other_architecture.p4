#include <core.p4>
#include <pna.p4>
