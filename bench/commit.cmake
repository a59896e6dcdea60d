# Writes the commit of the tree into a header, at every build, touching it only when it is another one.
# cmake -DSOURCE=... -DHEADER=... -P commit.cmake
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT [[
#pragma once
namespace planalto::bench {
inline constexpr const char* kCommit = "@commit@";
}
]] @ONLY)
