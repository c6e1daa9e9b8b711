#pragma once
// Operations for processors that lack them, made of others. Private to compile_orc.cc.

namespace llvm {
class Module;
}

namespace cellc {

/// Puts calls of functions that the module gets in the place of llvm.fma: of f32 with the same bits for all operands;
/// of f64 with the same bits but where the product is below 2^-969, where the last of its bits is lost, or a factor
/// above 2^996, where it is rounded before the sum.
void fuse_in_software(llvm::Module& module);

/// Puts whole numbers in the place of conversions between half precision and f32, with the same bits.
void convert_half_in_software(llvm::Module& module);

}  // namespace cellc
