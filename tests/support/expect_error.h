// SPDX-License-Identifier: Apache-2.0
// expect_error.h: a statement must raise an Error of one kind whose message holds each of the given pieces.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"

namespace planalto::testing {

template <class Body>
void expect_error(ErrorKind kind, std::initializer_list<std::string_view> pieces, Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(to_string(e.kind()), std::string(to_string(kind))) << e.what();
    for (const std::string_view piece : pieces) {
      EXPECT_NE(std::string_view(e.what()).find(piece), std::string_view::npos)
          << "\"" << piece << "\" is missing in: " << e.what();
    }
    return;
  }
  ADD_FAILURE() << "no error was raised";
}

}  // namespace planalto::testing
