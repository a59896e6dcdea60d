# The libraries from the bottom up; a folder links only to those below it (tests/structure checks the includes).
planalto_folder(base fmt::fmt Threads::Threads)
include(cmake/kernels.cmake)
planalto_folder(program planalto_base)
planalto_folder(ops planalto_program planalto_kernels)
planalto_folder(model planalto_kernels planalto_base)
planalto_folder(formats planalto_base)
