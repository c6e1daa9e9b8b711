#include "runtime/build/in_software.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>

#include <cstdint>
#include <vector>

namespace cellc {
namespace {

/// A number that an operation gave, and what rounding took from it.
struct Rounded {
  llvm::Value *value, *error;
};

class FusedBody {
 public:
  explicit FusedBody(llvm::Function& function)
      : to_(llvm::BasicBlock::Create(function.getContext(), "", &function)),
        type_(function.getReturnType()),
        wide_(type_->getWithNewType(to_.getDoubleTy())),
        bits_(type_->getWithNewType(to_.getInt64Ty())),
        a_(function.getArg(0)),
        b_(function.getArg(1)),
        c_(function.getArg(2)) {
    to_.CreateRet(type_->getScalarType()->isFloatTy() ? single() : twice());
  }

 private:
  /// The product of two f32 is an f64; the sum is rounded to odd there, so that rounding it again is as rounding once.
  llvm::Value* single() {
    const auto widen = [&](llvm::Value* v) { return to_.CreateFPExt(v, wide_); };
    return to_.CreateFPTrunc(odd(sum(to_.CreateFMul(widen(a_), widen(b_)), widen(c_))), type_);
  }

  /// S. Boldo, G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd"
  /// (IEEE Trans. Computers 57, 2008).
  llvm::Value* twice() {
    const Rounded u = product(a_, b_), t = sum(c_, u.error), v = sum(u.value, t.value);
    llvm::Value* exact = to_.CreateFAdd(v.value, odd(sum(t.error, v.error)));
    // Infinities, and the sign of a zero.
    llvm::Value *plain = to_.CreateFAdd(u.value, c_), *zero = llvm::ConstantFP::get(type_, 0);
    llvm::Value* finite = to_.CreateFCmpOEQ(to_.CreateFSub(exact, exact), zero);
    return to_.CreateSelect(to_.CreateAnd(finite, to_.CreateFCmpUNE(exact, zero)), exact, plain);
  }

  Rounded sum(llvm::Value* x, llvm::Value* y) {
    llvm::Value *s = to_.CreateFAdd(x, y), *of_y = to_.CreateFSub(s, x);
    return {s, to_.CreateFAdd(to_.CreateFSub(x, to_.CreateFSub(s, of_y)), to_.CreateFSub(y, of_y))};
  }

  Rounded product(llvm::Value* x, llvm::Value* y) {
    const Rounded of_x = halves(x), of_y = halves(y);
    llvm::Value *p = to_.CreateFMul(x, y), *rest = to_.CreateFSub(to_.CreateFMul(of_x.value, of_y.value), p);
    rest = to_.CreateFAdd(rest, to_.CreateFMul(of_x.value, of_y.error));
    rest = to_.CreateFAdd(rest, to_.CreateFMul(of_x.error, of_y.value));
    return {p, to_.CreateFAdd(rest, to_.CreateFMul(of_x.error, of_y.error))};
  }

  /// 26 bits and the rest, whose products are exact.
  Rounded halves(llvm::Value* x) {
    llvm::Value* large = to_.CreateFMul(x, llvm::ConstantFP::get(type_, 0x1p27 + 1));
    llvm::Value* high = to_.CreateFSub(large, to_.CreateFSub(large, x));
    return {high, to_.CreateFSub(x, high)};
  }

  /// What is not exact, with its last bit set: of the two neighbours the odd one.
  llvm::Value* odd(const Rounded& of) {
    llvm::Value *zero = llvm::ConstantFP::get(wide_, 0), *one = llvm::ConstantInt::get(bits_, 1);
    llvm::Value* bits = to_.CreateBitCast(of.value, bits_);
    llvm::Value* even = to_.CreateICmpEQ(to_.CreateAnd(bits, one), llvm::Constant::getNullValue(bits_));
    llvm::Value* moves = to_.CreateAnd(even, to_.CreateFCmpONE(of.error, zero));
    llvm::Value* inwards = to_.CreateXor(to_.CreateFCmpOGT(of.error, zero), to_.CreateFCmpOGT(of.value, zero));
    llvm::Value* moved = to_.CreateSelect(inwards, to_.CreateSub(bits, one), to_.CreateAdd(bits, one));
    return to_.CreateBitCast(to_.CreateSelect(moves, moved, bits), wide_);
  }

  llvm::IRBuilder<> to_;
  llvm::Type *type_, *wide_, *bits_;
  llvm::Value *a_, *b_, *c_;
};

/// Values of one place, of any number of elements.
class HalfConversion {
 public:
  HalfConversion(llvm::Instruction& before, llvm::Type* single)
      : to_(&before),
        single_(single),
        bits_(single->getWithNewType(to_.getInt32Ty())),
        short_(single->getWithNewType(to_.getInt16Ty())) {}

  llvm::Value* widened(llvm::Value* half) {
    llvm::Value* raw = to_.CreateZExt(to_.CreateBitCast(half, short_), bits_);
    llvm::Value *size = to_.CreateAnd(raw, number(0x7fff)),
                *sign = to_.CreateShl(to_.CreateAnd(raw, number(0x8000)), 16);
    llvm::Value* shifted = to_.CreateShl(size, 13);
    llvm::Value* normal = to_.CreateAdd(shifted, number(112u << 23));
    // In whole numbers and normal ones: a thread may have denormal ones flushed.
    llvm::Value* tiny = to_.CreateBitCast(
        to_.CreateFMul(to_.CreateUIToFP(size, single_), llvm::ConstantFP::get(single_, 0x1p-24)), bits_);
    llvm::Value* large = to_.CreateOr(shifted, number(0x7f800000));
    llvm::Value* quiet = to_.CreateSelect(to_.CreateICmpUGT(size, number(0x7c00)), number(0x400000), number(0));
    llvm::Value* found = to_.CreateSelect(to_.CreateICmpULT(size, number(0x400)), tiny, normal);
    found = to_.CreateSelect(to_.CreateICmpUGE(size, number(0x7c00)), to_.CreateOr(large, quiet), found);
    return to_.CreateBitCast(to_.CreateOr(found, sign), single_);
  }

  llvm::Value* narrowed(llvm::Value* single, llvm::Type* half) {
    llvm::Value* raw = to_.CreateBitCast(single, bits_);
    llvm::Value *size = to_.CreateAnd(raw, number(0x7fffffff)),
                *sign = to_.CreateAnd(to_.CreateLShr(raw, 16), number(0x8000));
    llvm::Value* ties = to_.CreateAdd(number(0xfff), to_.CreateAnd(to_.CreateLShr(size, 13), number(1)));
    llvm::Value* normal = to_.CreateLShr(to_.CreateSub(to_.CreateAdd(size, ties), number(112u << 23)), 13);
    // A half has the last place of the least halves.
    llvm::Value* shifted = to_.CreateFAdd(to_.CreateBitCast(size, single_), llvm::ConstantFP::get(single_, 0.5));
    llvm::Value* tiny = to_.CreateSub(to_.CreateBitCast(shifted, bits_), number(0x3f000000));
    llvm::Value* nan = to_.CreateOr(to_.CreateAnd(to_.CreateLShr(size, 13), number(0x3ff)), number(0x7e00));
    llvm::Value* found = to_.CreateSelect(to_.CreateICmpULT(size, number(0x38800000)), tiny, normal);
    found = to_.CreateSelect(to_.CreateICmpUGE(size, number(0x477ff000)), number(0x7c00), found);
    found = to_.CreateSelect(to_.CreateICmpUGT(size, number(0x7f800000)), nan, found);
    return to_.CreateBitCast(to_.CreateTrunc(to_.CreateOr(found, sign), short_), half);
  }

 private:
  llvm::Constant* number(std::uint32_t n) const { return llvm::ConstantInt::get(bits_, n); }

  llvm::IRBuilder<> to_;
  llvm::Type *single_, *bits_, *short_;
};

bool is_half(const llvm::Type* type) { return type->getScalarType()->isHalfTy(); }
bool is_single(const llvm::Type* type) { return type->getScalarType()->isFloatTy(); }

}  // namespace

void fuse_in_software(llvm::Module& module) {
  std::vector<llvm::Function*> fused;
  for (llvm::Function& function : module)
    if (function.getIntrinsicID() == llvm::Intrinsic::fma) fused.push_back(&function);
  for (llvm::Function* function : fused) {
    llvm::Function* body = llvm::Function::Create(function->getFunctionType(), llvm::GlobalValue::InternalLinkage,
                                                  "cellc." + function->getName().str(), module);
    FusedBody{*body};
    function->replaceAllUsesWith(body);
    function->eraseFromParent();
  }
}

void convert_half_in_software(llvm::Module& module) {
  for (llvm::Function& function : module)
    for (llvm::BasicBlock& block : function)
      for (llvm::Instruction& instruction : llvm::make_early_inc_range(block)) {
        const bool widens = instruction.getOpcode() == llvm::Instruction::FPExt;
        if (!widens && instruction.getOpcode() != llvm::Instruction::FPTrunc) continue;
        llvm::Value* from = instruction.getOperand(0);
        llvm::Type *type = instruction.getType(), *half = widens ? from->getType() : type,
                   *single = widens ? type : from->getType();
        if (!is_half(half) || !is_single(single)) continue;
        HalfConversion convert(instruction, single);
        instruction.replaceAllUsesWith(widens ? convert.widened(from) : convert.narrowed(from, half));
        instruction.eraseFromParent();
      }
}

}  // namespace cellc
