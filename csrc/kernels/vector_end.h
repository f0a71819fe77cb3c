/* vector_end.h: undefines what vector.h defined. */
#undef V
#undef VL
#undef VI
#undef TI
