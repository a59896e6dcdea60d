// SPDX-License-Identifier: Apache-2.0
// verify_mxfp8.h: MXFP8 vectors of other implementations against the kernels that quantize.
// Files       blocks: JSON lines {format, scale_mode, in: 32 fp32 as hex digits of their bits, scale, out: 32 codes};
//             element tables, known by their names: bf16_to_e4m3.bin, bf16_to_e5m2.bin (65,536 codes), e4m3_to_f32.bin,
//             e5m2_to_f32.bin (256 fp32, little endian)
// Errors      data: a line that is no block (file:line, the field, what is legal), a table of another size
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/target.h"
#include "verify/compare.h"

namespace planalto {

// Every block by rows, and by columns from the transposed matrix: one row each for scales and codes of a format and rule.
std::vector<VerifyRow> verify_mxfp8_blocks(const std::string& path, const Target& target);
// The whole table with the scalar conversions, and what a scale of 1 reaches of it with the kernels.
std::vector<VerifyRow> verify_mxfp8_table(const std::string& path, const Target& target);

// By the first line of a file, and by its name.
bool is_mxfp8_block(std::string_view line);
bool is_mxfp8_table(const std::string& path);

}  // namespace planalto
