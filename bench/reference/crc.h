// CRCs of short keys of known length: the CRC of a message is the exclusive or of what each of its bytes adds, so each byte has
// a table and no look-up waits for another one (Kounavis, Berry: "A Systematic Approach to Building High Performance
// Software-Based CRC Generators", ISCC 2005).
#pragma once

#include "reference.h"

static void crc_tables32(uint32_t (*tables)[256], int length) {
    for (int v = 0; v < 256; v++) {
        uint32_t crc = (uint32_t)v;
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        tables[length - 1][v] = crc;
    }
    for (int i = length - 2; i >= 0; i--) {
        for (int v = 0; v < 256; v++) {
            uint32_t crc = tables[i + 1][v];
            tables[i][v] = crc >> 8 ^ tables[length - 1][crc & 255];
        }
    }
}

static void crc_tables16(uint16_t (*tables)[256], int length) {
    for (int v = 0; v < 256; v++) {
        uint16_t crc = (uint16_t)v;
        for (int k = 0; k < 8; k++) crc = (uint16_t)(crc >> 1 ^ (crc & 1 ? 0xa001 : 0));
        tables[length - 1][v] = crc;
    }
    for (int i = length - 2; i >= 0; i--) {
        for (int v = 0; v < 256; v++) {
            uint16_t crc = tables[i + 1][v];
            tables[i][v] = (uint16_t)(crc >> 8 ^ tables[length - 1][crc & 255]);
        }
    }
}
