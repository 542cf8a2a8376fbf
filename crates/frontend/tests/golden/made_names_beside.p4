// The constant with a mistake has a name that a macro makes: nobody knows which, so no name is said to be missing.
#define MADE(n) const bit<8> n##_made = 1 1;

MADE(some)

bit<8> uses() {
    return some_made;
}
