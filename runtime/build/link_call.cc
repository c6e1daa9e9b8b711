#include "runtime/build/link_call.h"

#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Module.h>
#include <llvm/Linker/Linker.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Target/TargetMachine.h>

#include <optional>

#include "runtime/build/call_bitcode.h"
#include "runtime/build/llvm_analyses.h"
#include "runtime/data/errors.h"

namespace cellc {

namespace {

// Loops over tables lie two deep (kernels, and their slots), and how long the inner one is, is known after the outer
// one is unrolled.
constexpr int kRounds = 2;
constexpr const char* kUnroll = "simplifycfg,loop(loop-unroll-full),early-cse";
constexpr const char* kTidy = "sroa,early-cse<memssa>,jump-threading";
constexpr const char* kMark = "cellc-call";
constexpr const char* kBeside = "call_side_by_side";

}  // namespace

void link_call(llvm::Module& module) {
  llvm::NamedMDNode* prefix = module.getNamedMetadata("cellc.prefix");
  if (!prefix) return;
  const auto word = [&](unsigned i) {
    return llvm::cast<llvm::MDString>(prefix->getOperand(0)->getOperand(i))->getString().str();
  };
  const std::string name = word(0), run = word(1);
  auto code = llvm::parseBitcodeFile(llvm::MemoryBufferRef(call_bitcode(), "cpu_call"), module.getContext());
  if (!code) throw DeviceError("LLVM rejects the code of calls: " + llvm::toString(code.takeError()));
  // What the compiler of that code noted about its own target.
  if (llvm::NamedMDNode* flags = (*code)->getModuleFlagsMetadata()) flags->eraseFromParent();
  (*code)->setTargetTriple(module.getTargetTriple());
  (*code)->setDataLayout(module.getDataLayout());
  for (llvm::Function& function : **code) {
    if (function.isDeclaration()) continue;
    function.setAttributes({});
    if (function.getName() == "call_cell" || function.getName() == kBeside) function.addFnAttr(kMark);
    llvm::StringRef rest = function.getName();
    if (!rest.consume_front("cellc_cell")) continue;
    const bool runs = rest.consume_front("_forward");
    function.setName(name + (runs ? run : "") + rest);
  }
  if (llvm::Linker::linkModules(module, std::move(*code))) throw DeviceError("LLVM cannot link the code of calls");
  module.getGlobalVariable("cellc_cell")->setLinkage(llvm::GlobalValue::PrivateLinkage);
  prefix->eraseFromParent();
}

namespace {

void specialise(llvm::Function& call, LlvmAnalyses& analyses) {
  const auto run = [&](const char* text) {
    llvm::FunctionPassManager passes;
    if (llvm::Error error = analyses.builder.parsePassPipeline(passes, text))
      throw DeviceError("LLVM's pass pipeline: " + llvm::toString(std::move(error)));
    passes.run(call, analyses.functions);
  };
  run("early-cse");
  // Arrays whose lengths are constants now.
  for (llvm::Instruction& instruction : llvm::make_early_inc_range(call.getEntryBlock())) {
    auto* array = llvm::dyn_cast<llvm::AllocaInst>(&instruction);
    auto* length = array ? llvm::dyn_cast<llvm::ConstantInt>(array->getArraySize()) : nullptr;
    if (!length || !array->isArrayAllocation()) continue;
    auto* type = llvm::ArrayType::get(array->getAllocatedType(), length->getZExtValue());
    array->replaceAllUsesWith(
        new llvm::AllocaInst(type, array->getAddressSpace(), nullptr, array->getAlign(), "", array->getIterator()));
    array->eraseFromParent();
  }
  for (int round = 0; round < kRounds; ++round) run(kUnroll);
  run(kTidy);
}

}  // namespace

void specialise_call(llvm::Module& module, llvm::TargetMachine& machine) {
  std::optional<LlvmAnalyses> analyses;
  const auto each = [&](bool beside) {
    for (llvm::Function& function : llvm::make_early_inc_range(module)) {
      if (!function.hasFnAttribute(kMark) || function.getName().starts_with(kBeside) != beside) continue;
      if (!analyses) analyses.emplace(machine);
      // Of most cells the call has turned out never to ask for it.
      if (beside && function.use_empty())
        analyses->functions.clear(function, function.getName()), function.eraseFromParent();
      else
        specialise(function, *analyses);
    }
  };
  each(false);
  each(true);
}

const std::string& call_identity() {
  static const std::string identity = std::to_string(kRounds) + kUnroll + kTidy + std::string(call_bitcode());
  return identity;
}

}  // namespace cellc
