// SPDX-License-Identifier: Apache-2.0
// mxfp8.h: the reference bodies of kernels/mxfp8.h, one element at a time in double, and the conversions they use.
// Numerics    every quotient and power of two here is exact in double; nothing is shared with kernels/mxfp8_element.h
#pragma once

#include "kernels/mxfp8.h"

namespace planalto::kernels::reference {

// The number of a code, NaN and infinities included.
double mxfp8_value(std::uint8_t code, Mxfp8Format format);
// The code next to a number; of two the one with the even code.
std::uint8_t mxfp8_code(double value, Mxfp8Format format);
// The scale byte of a block by the greatest magnitude in it.
std::uint8_t mxfp8_scale(double amax, Mxfp8Format format, Mxfp8ScaleRule rule);

void mxfp8_quantize(const Mxfp8Quantize& a);
void mxfp8_dequantize(const Mxfp8Dequantize& a);

}  // namespace planalto::kernels::reference
