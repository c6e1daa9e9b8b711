#include "runtime/build/dispatch.h"

#include <fmt/format.h>
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/Target/TargetMachine.h>

#include "kernels-templates/cpu/cpu_features.h"
#include "runtime/build/call_bitcode.h"
#include "runtime/data/errors.h"

namespace cellc {

std::uint64_t processor_needs(const llvm::TargetMachine& machine) {
  static constexpr const char* kNames[] = {
#define CELLC_FEATURE(name, leaf, subleaf, place, bit, state) name,
      CELLC_CPU_FEATURES(CELLC_FEATURE)
#undef CELLC_FEATURE
  };
  static_assert(std::size(kNames) <= 64);
  std::uint64_t needs = 0;
  if (!machine.getTargetTriple().isX86()) return needs;
  for (std::size_t f = 0; f < std::size(kNames); ++f)
    if (machine.getMCSubtargetInfo()->checkFeatures(std::string("+") + kNames[f])) needs |= std::uint64_t{1} << f;
  return needs;
}

std::unique_ptr<llvm::Module> pick_module(llvm::LLVMContext& context, const llvm::TargetMachine& machine,
                                          const std::vector<std::uint64_t>& needs, const std::string& name) {
  auto code = llvm::parseBitcodeFile(llvm::MemoryBufferRef(pick_bitcode(), "pick_processor"), context);
  if (!code) throw DeviceError("LLVM rejects the code that picks a processor: " + llvm::toString(code.takeError()));
  llvm::Module& module = **code;
  if (llvm::NamedMDNode* flags = module.getModuleFlagsMetadata()) flags->eraseFromParent();
  module.setTargetTriple(machine.getTargetTriple().str());
  module.setDataLayout(machine.createDataLayout());
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) function.setAttributes({});
  const auto define = [&](const char* global, llvm::Constant* value) {
    llvm::GlobalVariable* declared = module.getGlobalVariable(global);
    auto* defined = new llvm::GlobalVariable(module, value->getType(), true, llvm::GlobalValue::PrivateLinkage, value);
    if (!declared) return;  // by a machine that asks for nothing
    declared->replaceAllUsesWith(defined);
    declared->eraseFromParent();
  };
  define("cellc_needs", llvm::ConstantDataArray::get(context, needs));
  define("cellc_need_count", llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), needs.size()));
  module.getFunction("cellc_pick")->setName(name);
  return std::move(*code);
}

std::string name_for(const std::string& function, std::size_t processor) {
  return fmt::format("{}.{}", function, processor);
}

llvm::Function& add_dispatch(llvm::Module& module, const std::string& function, std::size_t processors,
                             const std::string& pick, int none) {
  llvm::LLVMContext& context = module.getContext();
  llvm::FunctionType* type = module.getFunction(name_for(function, 1))->getFunctionType();
  llvm::Function* dispatch = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, function, module);
  dispatch->setUWTableKind(llvm::UWTableKind::Async);
  const auto block = [&] { return llvm::BasicBlock::Create(context, "", dispatch); };
  llvm::IRBuilder<> to(block());
  llvm::CallInst* picked = to.CreateCall(module.getFunction(pick));
  llvm::BasicBlock* otherwise = block();
  llvm::SwitchInst* choice = to.CreateSwitch(picked, otherwise);
  to.SetInsertPoint(otherwise);
  to.CreateRet(llvm::ConstantInt::get(type->getReturnType(), static_cast<std::uint64_t>(none)));
  std::vector<llvm::Value*> arguments;
  for (llvm::Argument& argument : dispatch->args()) arguments.push_back(&argument);
  for (std::size_t k = 1; k <= processors; ++k) {
    llvm::BasicBlock* taken = block();
    choice->addCase(to.getInt32(static_cast<std::uint32_t>(k)), taken);
    to.SetInsertPoint(taken);
    llvm::CallInst* call = to.CreateCall(module.getFunction(name_for(function, k)), arguments);
    call->setTailCall();
    to.CreateRet(call);
  }
  return *dispatch;
}

}  // namespace cellc
