// The core library of P4_16: what every architecture builds upon (P4_16 specification, appendix "P4 core library").

// Programs ask whether this file is there with the name of the guard.
#ifndef _CORE_P4_
#define _CORE_P4_

error {
    NoError,
    PacketTooShort,         // extract, advance or lookahead past the end
    NoMatch,                // no case of a select matches
    StackOutOfBounds,       // next or last of a stack that has none
    HeaderTooShort,         // more bits for a varbit than it can hold
    ParserTimeout,          // too many states
    ParserInvalidArgument   // a size that is no multiple of 8
}

match_kind {
    exact,
    ternary,
    lpm
}

extern packet_in {
    void extract<T>(out T hdr);
    void extract<T>(out T variableSizeHeader, in bit<32> variableFieldSizeInBits);
    T lookahead<T>();
    void advance(in bit<32> sizeInBits);
    bit<32> length();
}

extern packet_out {
    void emit<T>(in T hdr);
}

// In parsers only: sets the parser error and rejects unless the condition holds.
extern void verify(in bool check, in error toSignal);

// Evaluated by the compiler.
extern bool static_assert(bool check, string message);
extern bool static_assert(bool check);

// What a table without default_action runs on a miss.
action NoAction() {}

#endif
