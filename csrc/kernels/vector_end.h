/* vector_end.h: undefines what vector.h defined. */
#undef V
#undef VL
#undef VI
#undef TI
#undef RP_LANES
#undef RP_SHUFFLE
#undef RP_SWAP1
#undef RP_SWAP2
#undef RP_SWAP4
#undef RP_SWAP8
#undef RP_LOW
#undef RP_HIGH
