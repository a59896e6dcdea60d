# src/kernels: contracts at the top, bodies in cpu/. Each file of cpu/ is compiled once per instruction set, into a
# namespace of its own (PLANALTO_ISA_NS), so that a wide instruction can only stand in the object that is chosen for it.
# Always optimised, in every build type: helpers must be inlined away, since no ISA object may define a weak symbol.
file(GLOB kernel_bodies CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cpu/*.cpp)
file(GLOB kernel_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/*.cpp)
add_library(planalto_kernels STATIC ${kernel_sources})
target_link_libraries(planalto_kernels PUBLIC planalto_base)

# g++ 12 takes the undefined vectors inside its own intrinsics for uninitialized variables.
set(PLANALTO_INTRINSICS -Wno-uninitialized -Wno-maybe-uninitialized)
set(PLANALTO_ISA_FLAGS_avx2 -march=x86-64-v3 ${PLANALTO_INTRINSICS})
set(PLANALTO_ISA_FLAGS_avx512 -march=x86-64-v4 -mprefer-vector-width=512 ${PLANALTO_INTRINSICS})
set(PLANALTO_ISA_FLAGS_avx512_bf16 -march=x86-64-v4 -mavx512bf16 -mavx512vnni -mprefer-vector-width=512 ${PLANALTO_INTRINSICS})
set(PLANALTO_ISA_FLAGS_amx ${PLANALTO_ISA_FLAGS_avx512_bf16} -mamx-tile -mamx-bf16)
set(PLANALTO_ISAS avx2 avx512 avx512_bf16 amx)
set(product_bodies grouped_gemm.cpp loss_head.cpp peak.cpp)  # those of PLANALTO_PRODUCT_KERNELS
foreach(isa ${PLANALTO_ISAS})
  set(bodies ${kernel_bodies})
  if(isa STREQUAL avx512_bf16 OR isa STREQUAL amx)  # the rest is AVX-512's (select.cpp)
    list(TRANSFORM product_bodies PREPEND ${CMAKE_SOURCE_DIR}/src/kernels/cpu/ OUTPUT_VARIABLE bodies)
  endif()
  add_library(planalto_kernels_${isa} OBJECT ${bodies})
  target_link_libraries(planalto_kernels_${isa} PRIVATE planalto_flags fmt::fmt)
  target_compile_options(planalto_kernels_${isa} PRIVATE ${PLANALTO_ISA_FLAGS_${isa}} -O3 -fno-exceptions -fvisibility=hidden)
  target_compile_definitions(planalto_kernels_${isa} PRIVATE PLANALTO_ISA_NS=${isa})
  target_link_libraries(planalto_kernels PUBLIC $<TARGET_OBJECTS:planalto_kernels_${isa}>)
endforeach()

# The reference bodies: scalar, wide accumulators, written to be read; linked into tests only.
file(GLOB reference_bodies CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/ref/*.cpp)
if(PLANALTO_TESTS AND reference_bodies)
  add_library(planalto_reference STATIC ${reference_bodies})
  target_link_libraries(planalto_reference PUBLIC planalto_kernels)
endif()
