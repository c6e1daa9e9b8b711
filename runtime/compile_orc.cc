// The only file that includes LLVM's JIT headers: they take long to compile.
#include "runtime/compile_orc.h"

#include <fmt/format.h>
#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <vector>

#include "runtime/engine.h"

namespace cellc {

namespace {

void initialise_target() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

const llvm::StringMap<bool>& host_features() {
  static const llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  return features;
}

std::string message_of(llvm::Error error) { return llvm::toString(std::move(error)); }

/// The processor to compile for, checked: LLVM knows it, this machine runs it, it has FMA.
std::unique_ptr<llvm::TargetMachine> target_machine(const std::string& cpu) {
  initialise_target();
  const bool native = cpu == "native";
  const std::string triple = llvm::sys::getProcessTriple();
  std::string problem;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, problem);
  if (!target) throw DeviceError(fmt::format("LLVM has no code generator for {}: {}", triple, problem));
  std::string features;
  if (native) {
    for (const auto& feature : host_features()) {
      features += fmt::format("{}{}{}", features.empty() ? "" : ",", feature.second ? "+" : "-",
                              feature.first().str());
    }
  }
  const std::string name = native ? host_cpu_name() : cpu;
  {
    // An unknown name makes LLVM print to stderr and go on with a generic processor.
    const std::unique_ptr<llvm::MCSubtargetInfo> generic(target->createMCSubtargetInfo(triple, "", ""));
    if (!generic || !generic->isCPUStringValid(name)) {
      throw DeviceError(fmt::format("LLVM knows no processor '{}' for {}; use \"native\"", name, triple));
    }
  }
  llvm::TargetOptions options;
  // Fuse only what the text asks to fuse: llvm.fma, llvm.fmuladd and instructions flagged contract.
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(triple, name, features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                  llvm::CodeGenOptLevel::Default,
                                  /*JIT=*/true));
  if (!machine) throw DeviceError(fmt::format("LLVM cannot generate code for {} on {}", name, triple));
  const llvm::MCSubtargetInfo& subtarget = *machine->getMCSubtargetInfo();
  if (!native) {
    for (const auto& feature : subtarget.getEnabledProcessorFeatures()) {
      const auto found = host_features().find(feature.Key);
      if (found != host_features().end() && !found->second) {
        throw DeviceError(
            fmt::format("processor '{}' has {}, which this machine ({}) has not; use \"native\"", cpu,
                        feature.Key, host_cpu_name()));
      }
    }
  }
  if (machine->getTargetTriple().isX86() && !subtarget.checkFeatures("+fma")) {
    throw DeviceError(
        fmt::format("processor '{}' has no fused multiply-add, which our functions need; "
                    "x86-64-v3 and later have it",
                    name));
  }
  return machine;
}

int vector_bits(const llvm::TargetMachine& machine) {
  if (!machine.getTargetTriple().isX86()) return 128;
  const llvm::MCSubtargetInfo& subtarget = *machine.getMCSubtargetInfo();
  if (subtarget.checkFeatures("+avx512f")) return 512;
  return subtarget.checkFeatures("+avx2") ? 256 : 128;
}

std::string line_of(const std::string& text, int number) {
  std::size_t start = 0;
  for (int k = 1; k < number; ++k) {
    start = text.find('\n', start);
    if (start == std::string::npos) return "";
    ++start;
  }
  return text.substr(start, text.find('\n', start) - start);
}

std::unique_ptr<llvm::Module> parse(const std::string& text, llvm::LLVMContext& context) {
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(text, diagnostic, context);
  if (!module) {
    throw DeviceError(fmt::format("LLVM rejects the generated code at line {}: {}\n  {}",
                                  diagnostic.getLineNo(), diagnostic.getMessage().str(),
                                  line_of(text, diagnostic.getLineNo())));
  }
  std::string problems;
  llvm::raw_string_ostream stream(problems);
  if (llvm::verifyModule(*module, &stream)) {
    stream.flush();
    throw DeviceError("LLVM finds the generated code malformed: " + problems);
  }
  return module;
}

/// The text is vectorised already, so only what tidies it up is run: inlining of our functions,
/// scalar replacement, common subexpressions, what is invariant out of the loops.
void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  module.setTargetTriple(machine.getTargetTriple().str());
  module.setDataLayout(machine.createDataLayout());
  const std::string bits = std::to_string(vector_bits(machine));
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    // LLVM prefers 256 bits on many processors with AVX-512 and would split our vectors.
    function.addFnAttr("prefer-vector-width", bits);
    function.addFnAttr("min-legal-vector-width", bits);
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
  }
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;
  const char* pipeline =
      "always-inline,globaldce,function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,"
      "loop-mssa(loop-rotate,licm),early-cse<memssa>,simplifycfg)";
  if (llvm::Error error = builder.parsePassPipeline(passes, pipeline)) {
    throw DeviceError("LLVM's pass pipeline: " + message_of(std::move(error)));
  }
  passes.run(module, modules);
}

llvm::SmallVector<char, 0> emit(llvm::Module& module, llvm::TargetMachine& machine,
                                llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, type)) {
    throw DeviceError("LLVM cannot write this kind of output for this processor");
  }
  passes.run(module);
  return bytes;
}

void check(llvm::Error error, const char* what) {
  if (error) throw DeviceError(fmt::format("{}: {}", what, message_of(std::move(error))));
}

}  // namespace

struct CompiledModule::Impl {
  std::string text;
  std::string cpu;
  std::map<std::string, void*> symbols;
  std::unique_ptr<llvm::orc::LLJIT> jit;
};

CompiledModule::CompiledModule(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CompiledModule::~CompiledModule() = default;

void* CompiledModule::symbol(const std::string& name) const {
  const auto found = impl_->symbols.find(name);
  return found == impl_->symbols.end() ? nullptr : found->second;
}

std::string CompiledModule::assembly() const {
  const std::unique_ptr<llvm::TargetMachine> machine = target_machine(impl_->cpu);
  llvm::LLVMContext context;
  const std::unique_ptr<llvm::Module> module = parse(impl_->text, context);
  optimise(*module, *machine);
  const auto bytes = emit(*module, *machine, llvm::CodeGenFileType::AssemblyFile);
  return std::string(bytes.begin(), bytes.end());
}

std::unique_ptr<CompiledModule> compile_orc(const std::string& ir_text, const std::string& cpu,
                                            const std::map<std::string, void*>& callbacks) {
  const auto start = std::chrono::steady_clock::now();
  const std::unique_ptr<llvm::TargetMachine> machine = target_machine(cpu);
  llvm::SmallVector<char, 0> object;
  std::vector<std::string> exported;
  {
    llvm::LLVMContext context;
    const std::unique_ptr<llvm::Module> module = parse(ir_text, context);
    for (const llvm::Function& function : *module) {
      if (!function.isDeclaration() && !function.hasLocalLinkage())
        exported.push_back(function.getName().str());
    }
    optimise(*module, *machine);
    object = emit(*module, *machine, llvm::CodeGenFileType::ObjectFile);
  }

  // Compiled here rather than inside the JIT: one thread, and the linker below is all it adds.
  llvm::orc::LLJITBuilder builder;
  builder.setJITTargetMachineBuilder(llvm::orc::JITTargetMachineBuilder(machine->getTargetTriple()));
  builder.setDataLayout(machine->createDataLayout());
  builder.setLinkProcessSymbolsByDefault(false);  // so that nothing of libm is found
  builder.setPlatformSetUp(llvm::orc::setUpInactivePlatform);
  auto made = builder.create();
  if (!made) throw DeviceError("LLVM's JIT did not start: " + message_of(made.takeError()));
  auto impl = std::make_unique<CompiledModule::Impl>();
  impl->jit = std::move(*made);
  llvm::orc::LLJIT& jit = *impl->jit;
  // A failing lookup says only that it failed; the reason, such as the symbol that is missing, goes
  // to the session's reporter, which would print it. The session may outlive this function.
  const auto reasons = std::make_shared<std::string>();
  jit.getExecutionSession().setErrorReporter(
      [reasons](llvm::Error error) { *reasons += message_of(std::move(error)) + "; "; });

  llvm::orc::SymbolMap known;
  const auto allow = [&](const std::string& name, void* address) {
    known[jit.mangleAndIntern(name)] = {llvm::orc::ExecutorAddr::fromPtr(address),
                                        llvm::JITSymbolFlags::Exported};
  };
  allow("memcpy",
        reinterpret_cast<void*>(static_cast<void* (*)(void*, const void*, std::size_t)>(&std::memcpy)));
  allow("memmove",
        reinterpret_cast<void*>(static_cast<void* (*)(void*, const void*, std::size_t)>(&std::memmove)));
  allow("memset", reinterpret_cast<void*>(static_cast<void* (*)(void*, int, std::size_t)>(&std::memset)));
  for (const auto& [name, address] : callbacks) allow(name, address);
  check(jit.getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(known))), "LLVM's JIT");
  check(jit.addObjectFile(std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(object), "cell", false)),
        "LLVM's JIT refuses its own object");
  for (const std::string& name : exported) {
    auto address = jit.lookup(name);
    if (!address) {
      const std::string message = message_of(address.takeError());
      throw DeviceError(fmt::format("linking the generated code: {}{}", *reasons, message));
    }
    impl->symbols[name] = address->toPtr<void*>();
  }
  impl->text = ir_text;
  impl->cpu = cpu;
  std::unique_ptr<CompiledModule> result(new CompiledModule(std::move(impl)));
  result->compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return result;
}

int host_vector_bits(const std::string& cpu) { return vector_bits(*target_machine(cpu)); }

std::string host_cpu_name() { return llvm::sys::getHostCPUName().str(); }

}  // namespace cellc
