// The only file that includes LLVM's JIT headers: they take long to compile.
#include "runtime/build/compile_orc.h"

#include <fmt/format.h>
#include <llvm-c/Core.h>
#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/ExecutionEngine/JITLink/EHFrameSupport.h>
#include <llvm/ExecutionEngine/Orc/ObjectFileInterface.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Linker/Linker.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <vector>

#include "kernels-templates/abi/call_results.h"
#include "runtime/build/cut_blocks.h"
#include "runtime/build/dispatch.h"
#include "runtime/build/in_software.h"
#include "runtime/build/link_call.h"
#include "runtime/build/llvm_analyses.h"
#include "runtime/data/errors.h"
#include "runtime/data/fault_points.h"
#include "runtime/data/object_cache.h"

namespace cellc {

namespace {

// Passes over a module. The text is vectorised already, so only what tidies it up is run: inlining
// of our functions, scalar replacement, common subexpressions, what is invariant out of the loops.
constexpr const char* kPasses =
    "always-inline,globaldce,function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,"
    "loop-mssa(loop-rotate,licm),early-cse<memssa>,simplifycfg)";
// Stands for the rest of what target_machine(), optimise() and emit() do to a module. Raise it when
// they change: cached code is found by it.
constexpr int kCodeGeneration = 2;

void initialise_target() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    llvm::InitializeNativeTargetAsmParser();  // of CPUID, which the code that picks a processor asks
  });
}

const llvm::StringMap<bool>& host_features() {
  static const llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  return features;
}

/// All of them with their sign, in LLVM's syntax and alphabetical order.
const std::string& host_feature_list() {
  static const std::string list = [] {
    std::map<std::string, bool> sorted;
    for (const auto& feature : host_features()) sorted[feature.first().str()] = feature.second;
    std::string text;
    for (const auto& [name, present] : sorted)
      text += fmt::format("{}{}{}", text.empty() ? "" : ",", present ? "+" : "-", name);
    return text;
  }();
  return list;
}

std::string message_of(llvm::Error error) { return llvm::toString(std::move(error)); }

/// Who is to run the code: this process, or a program that is linked later; on any processor, if it does nothing else
/// than tell what this one is.
enum class Use { Here, Elsewhere, Anywhere };

/// An unknown name makes LLVM print to stderr and go on with a generic processor.
bool knows_processor(const llvm::Target& target, const std::string& triple, const std::string& name) {
  const std::unique_ptr<llvm::MCSubtargetInfo> generic(target.createMCSubtargetInfo(triple, "", ""));
  return generic && generic->isCPUStringValid(name);
}

/// The oldest processor whose code runs wherever this machine's does, of which nothing is asked.
constexpr const char* kAnyProcessor = "x86-64";

/// The processor to compile for, checked: LLVM knows it, it has SSE 4.1, and where need be this machine runs it.
std::unique_ptr<llvm::TargetMachine> target_machine(const std::string& cpu, Use use = Use::Here) {
  initialise_target();
  const bool native = cpu == "native";
  const std::string triple = llvm::sys::getProcessTriple();
  std::string problem;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, problem);
  if (!target) throw DeviceError(fmt::format("LLVM has no code generator for {}: {}", triple, problem));
  const std::string features = native ? host_feature_list() : "";
  const std::string name = native ? host_cpu_name() : cpu;
  if (!knows_processor(*target, triple, name))
    throw DeviceError(fmt::format("LLVM knows no processor '{}' for {}; use \"native\"", name, triple));
  llvm::TargetOptions options;
  // Fuse only what the text asks to fuse: llvm.fma, llvm.fmuladd and instructions flagged contract.
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, name, features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default,
      /*JIT=*/use == Use::Here));
  if (!machine) throw DeviceError(fmt::format("LLVM cannot generate code for {} on {}", name, triple));
  const llvm::MCSubtargetInfo& subtarget = *machine->getMCSubtargetInfo();
  if (!native && use == Use::Here) {
    for (const auto& feature : subtarget.getEnabledProcessorFeatures()) {
      const auto found = host_features().find(feature.Key);
      if (found != host_features().end() && !found->second) {
        throw DeviceError(fmt::format("processor '{}' has {}, which this machine ({}) has not; use \"native\"", cpu,
                                      feature.Key, host_cpu_name()));
      }
    }
  }
  // Without it rounding to whole numbers is a function of libm.
  if (machine->getTargetTriple().isX86() && !subtarget.checkFeatures("+sse4.1") && use != Use::Anywhere) {
    throw DeviceError(
        fmt::format("processor '{}' has no SSE 4.1, which our functions need; x86-64-v2 and later have it", name));
  }
  return machine;
}

/// Of a processor of which `has` tells whether it has a feature.
template <class Has>
int vector_bits(const llvm::Triple& triple, const Has& has) {
  if (!triple.isX86()) return 128;
  if (has("avx512f")) return 512;
  return has("avx2") ? 256 : 128;
}

int vector_bits(const llvm::TargetMachine& machine) {
  const llvm::MCSubtargetInfo& subtarget = *machine.getMCSubtargetInfo();
  return vector_bits(machine.getTargetTriple(),
                     [&](const std::string& name) { return subtarget.checkFeatures("+" + name); });
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

/// With what it calls of ours.
std::unique_ptr<llvm::Module> parse(const std::string& text, llvm::LLVMContext& context,
                                    const llvm::TargetMachine& machine) {
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(text, diagnostic, context);
  if (!module) {
    throw DeviceError(fmt::format("LLVM rejects the generated code at line {}: {}\n  {}", diagnostic.getLineNo(),
                                  diagnostic.getMessage().str(), line_of(text, diagnostic.getLineNo())));
  }
  std::string problems;
  llvm::raw_string_ostream stream(problems);
  if (llvm::verifyModule(*module, &stream)) {
    stream.flush();
    throw DeviceError("LLVM finds the generated code malformed: " + problems);
  }
  module->setTargetTriple(machine.getTargetTriple().str());
  module->setDataLayout(machine.createDataLayout());
  link_call(*module);
  return module;
}

void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  const llvm::MCSubtargetInfo& subtarget = *machine.getMCSubtargetInfo();
  if (machine.getTargetTriple().isX86()) {
    if (!subtarget.checkFeatures("+fma")) fuse_in_software(module);
    if (!subtarget.checkFeatures("+f16c")) convert_half_in_software(module);
  }
  const std::string bits = std::to_string(vector_bits(machine));
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    // LLVM prefers 256 bits on many processors with AVX-512 and would split our vectors.
    function.addFnAttr("prefer-vector-width", bits);
    function.addFnAttr("min-legal-vector-width", bits);
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
  }
  specialise_call(module, machine);
  call_what_is_long(module);
  LlvmAnalyses analyses(machine);
  llvm::ModulePassManager passes;
  if (llvm::Error error = analyses.builder.parsePassPipeline(passes, kPasses)) {
    throw DeviceError("LLVM's pass pipeline: " + message_of(std::move(error)));
  }
  passes.run(module, analyses.modules);
  cut_blocks(module);
}

llvm::SmallVector<char, 0> emit(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, type)) {
    throw DeviceError("LLVM cannot write this kind of output for this processor");
  }
  passes.run(module);
  return bytes;
}

ObjectKey key_of(const std::string& ir_text, const std::string& cpu) {
  ObjectIdentity identity;
  identity.kind = "object";
  identity.text = ir_text;
  identity.platform = llvm::sys::getProcessTriple();
  identity.processor = cpu == "native" ? host_cpu_name() : cpu;
  // For a named processor too: a hit must not skip the check that this machine can run it.
  identity.features = cpu + ":" + host_feature_list();
  identity.options = fmt::format("{};{};{}", kCodeGeneration, kPasses, call_identity());
  identity.compiler = llvm_version();
  return object_key(identity);
}

/// Text to object code.
std::vector<char> generate(const std::string& ir_text, const std::string& cpu) {
  const std::unique_ptr<llvm::TargetMachine> machine = target_machine(cpu);
  llvm::LLVMContext context;
  const std::unique_ptr<llvm::Module> module = parse(ir_text, context, *machine);
  optimise(*module, *machine);
  const auto object = emit(*module, *machine, llvm::CodeGenFileType::ObjectFile);
  return {object.begin(), object.end()};
}

void check(llvm::Error error, const char* what) {
  if (error) throw DeviceError(fmt::format("{}: {}", what, message_of(std::move(error))));
}

template <class T>
T checked(llvm::Expected<T> value, const char* what) {
  if (!value) throw DeviceError(fmt::format("{}: {}", what, message_of(value.takeError())));
  return std::move(*value);
}

/// An object linked into this process. LLVM's LLJIT does the same, and starts a code generator too,
/// which cached code has no use for.
class LinkedObject {
 public:
  LinkedObject(const std::vector<char>& object, const std::map<std::string, void*>& callbacks)
      : session_(checked(llvm::orc::SelfExecutorProcessControl::Create(
                             nullptr, std::make_unique<llvm::orc::InPlaceTaskDispatcher>()),
                         "LLVM's JIT did not start")),
        layer_(session_) {
    try {
      link(object, callbacks);
    } catch (...) {
      llvm::consumeError(session_.endSession());
      throw;
    }
  }
  ~LinkedObject() { llvm::consumeError(session_.endSession()); }
  LinkedObject(const LinkedObject&) = delete;
  LinkedObject& operator=(const LinkedObject&) = delete;

  void* symbol(const std::string& name) const {
    const auto found = symbols_.find(name);
    return found == symbols_.end() ? nullptr : found->second;
  }

 private:
  void link(const std::vector<char>& object, const std::map<std::string, void*>& callbacks) {
    // A failing lookup says only that it failed; the reason, such as the symbol that is missing, goes
    // to the session's reporter, which would print it.
    session_.setErrorReporter([this](llvm::Error error) { reasons_ += message_of(std::move(error)) + "; "; });
    // What a callback throws, and backtrace(), go through the code.
    layer_.addPlugin(std::make_shared<llvm::orc::EHFrameRegistrationPlugin>(
        session_, std::make_unique<llvm::jitlink::InProcessEHFrameRegistrar>()));
    llvm::orc::JITDylib& library = session_.createBareJITDylib("cell");

    // All that the code may call: nothing of this process is found by itself.
    llvm::orc::SymbolMap known;
    const auto allow = [&](const std::string& name, void* address) {
      known[session_.intern(name)] = {llvm::orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
    };
    allow("memcpy", reinterpret_cast<void*>(static_cast<void* (*)(void*, const void*, std::size_t)>(&std::memcpy)));
    allow("memmove", reinterpret_cast<void*>(static_cast<void* (*)(void*, const void*, std::size_t)>(&std::memmove)));
    allow("memset", reinterpret_cast<void*>(static_cast<void* (*)(void*, int, std::size_t)>(&std::memset)));
    for (const auto& [name, address] : callbacks) allow(name, address);
    check(library.define(llvm::orc::absoluteSymbols(std::move(known))), "LLVM's JIT");

    auto buffer = llvm::MemoryBuffer::getMemBufferCopy({object.data(), object.size()}, "cell");
    auto interface = checked(llvm::orc::getObjectFileInterface(session_, buffer->getMemBufferRef()),
                             "LLVM's JIT refuses the object");
    llvm::orc::SymbolLookupSet exported;
    for (const auto& [name, flags] : interface.SymbolFlags)
      if (flags.isExported() && flags.isCallable()) exported.add(name);
    check(layer_.add(library, std::move(buffer), std::move(interface)), "LLVM's JIT refuses the object");
    auto addresses = session_.lookup(llvm::orc::makeJITDylibSearchOrder(&library), std::move(exported));
    if (!addresses) {
      const std::string message = message_of(addresses.takeError());
      throw DeviceError(fmt::format("linking the generated code: {}{}", reasons_, message));
    }
    for (const auto& [name, definition] : *addresses) symbols_[(*name).str()] = definition.getAddress().toPtr<void*>();
  }

  std::string reasons_;
  llvm::orc::ExecutionSession session_;
  llvm::orc::ObjectLinkingLayer layer_;
  std::map<std::string, void*> symbols_;
};

/// Cached code that does not link is no better than none.
std::unique_ptr<LinkedObject> linked_from(const ObjectCache& cache, const ObjectKey& key,
                                          const std::map<std::string, void*>& callbacks) {
  const std::optional<std::vector<char>> object = cache.find(key);
  if (!object) return nullptr;
  try {
    return std::make_unique<LinkedObject>(*object, callbacks);
  } catch (const DeviceError&) {
    return nullptr;
  }
}

}  // namespace

struct CompiledModule::Impl {
  std::string text;
  std::string cpu;
  std::unique_ptr<LinkedObject> linked;
};

CompiledModule::CompiledModule(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CompiledModule::~CompiledModule() = default;

void* CompiledModule::symbol(const std::string& name) const { return impl_->linked->symbol(name); }

std::string CompiledModule::assembly() const {
  const std::unique_ptr<llvm::TargetMachine> machine = target_machine(impl_->cpu);
  llvm::LLVMContext context;
  const std::unique_ptr<llvm::Module> module = parse(impl_->text, context, *machine);
  optimise(*module, *machine);
  const auto bytes = emit(*module, *machine, llvm::CodeGenFileType::AssemblyFile);
  return std::string(bytes.begin(), bytes.end());
}

std::unique_ptr<CompiledModule> compile_orc(const std::string& ir_text, const std::string& cpu,
                                            const std::map<std::string, void*>& callbacks,
                                            const std::string& cache_directory) {
  if (fails_now(FaultPoint::Compile)) throw DeviceError("compiling failed, as CELLC_FAULT asked for");
  const auto start = std::chrono::steady_clock::now();
  auto impl = std::make_unique<CompiledModule::Impl>();
  CacheState state = CacheState::Off;
  const ObjectCache cache(cache_directory);
  ObjectKey key{};
  if (!cache_directory.empty()) {
    key = key_of(ir_text, cpu);
    impl->linked = linked_from(cache, key, callbacks);
    if (impl->linked) state = CacheState::Hit;
  }
  if (!impl->linked) {
    const std::vector<char> object = generate(ir_text, cpu);
    impl->linked = std::make_unique<LinkedObject>(object, callbacks);
    // Only code that links is kept.
    if (cache.store(key, {object.data(), object.size()})) state = CacheState::Miss;
  }
  impl->text = ir_text;
  impl->cpu = cpu;
  std::unique_ptr<CompiledModule> result(new CompiledModule(std::move(impl)));
  result->cache = state;
  result->compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return result;
}

namespace {

/// Functions of one object, for one processor. Those in `exported` keep their names.
std::unique_ptr<llvm::Module> object_module(const std::vector<std::string>& ir_texts, llvm::LLVMContext& context,
                                            llvm::TargetMachine& machine, const std::vector<std::string>& exported) {
  std::unique_ptr<llvm::Module> module;
  for (const std::string& text : ir_texts) {
    std::unique_ptr<llvm::Module> next = parse(text, context, machine);
    if (!module)
      module = std::move(next);
    else if (llvm::Linker::linkModules(*module, std::move(next)))
      throw DeviceError("LLVM cannot link the functions of one object");
  }
  for (llvm::Function& function : *module) {
    if (function.isDeclaration()) continue;
    // Whoever calls an object may be unwound through it, by a debugger or a profiler.
    function.setUWTableKind(llvm::UWTableKind::Async);
    if (std::find(exported.begin(), exported.end(), function.getName()) == exported.end())
      function.setLinkage(llvm::GlobalValue::InternalLinkage);
  }
  module->setPICLevel(llvm::PICLevel::BigPIC);
  return module;
}

/// Code for one of several processors, with names of its own.
std::unique_ptr<llvm::Module> part_module(const ObjectPart& part, std::size_t number, llvm::LLVMContext& context,
                                          llvm::TargetMachine& machine, const std::vector<std::string>& run) {
  std::unique_ptr<llvm::Module> module = object_module(part.ir_texts, context, machine, run);
  optimise(*module, machine);
  for (const std::string& name : run) module->getFunction(name)->setName(name_for(name, number));
  return module;
}

/// What is the same for all processors, and runs on any: functions that only read tables. What tables refer to is of
/// the processors.
std::unique_ptr<llvm::Module> told_module(const ObjectRequest& request, llvm::LLVMContext& context,
                                          llvm::TargetMachine& machine) {
  std::unique_ptr<llvm::Module> module = object_module(request.parts[0].ir_texts, context, machine, request.told);
  std::vector<llvm::Function*> others;
  for (llvm::Function& function : *module)
    if (function.hasInternalLinkage()) others.push_back(&function);
  for (llvm::Function* function : others) function->deleteBody();
  for (llvm::Function* function : others) {
    function->replaceAllUsesWith(llvm::ConstantPointerNull::get(function->getType()));
    function->eraseFromParent();
  }
  optimise(*module, machine);
  return module;
}

void link(llvm::Module& to, std::unique_ptr<llvm::Module> part) {
  if (llvm::Linker::linkModules(to, std::move(part))) throw DeviceError("LLVM cannot link the parts of one object");
}

}  // namespace

std::string compile_object(const ObjectRequest& request) {
  llvm::LLVMContext context;
  std::vector<std::uint64_t> needs;
  std::vector<std::string> names = request.run;
  names.insert(names.end(), request.told.begin(), request.told.end());
  std::unique_ptr<llvm::Module> module;
  std::unique_ptr<llvm::TargetMachine> machine;
  const bool several = request.parts.size() > 1;
  for (const ObjectPart& part : request.parts) {
    machine = target_machine(part.cpu, Use::Elsewhere);
    needs.push_back(processor_needs(*machine));
    if (!several) {
      module = object_module(part.ir_texts, context, *machine, names);
      optimise(*module, *machine);
    } else if (std::unique_ptr<llvm::Module> next = part_module(part, needs.size(), context, *machine, request.run);
               module) {
      link(*module, std::move(next));
    } else {
      module = std::move(next);
    }
  }
  std::unique_ptr<llvm::TargetMachine> any;
  if (!request.supported.empty()) {
    const bool x86 = machine->getTargetTriple().isX86();
    any = target_machine(x86 ? kAnyProcessor : request.parts[0].cpu, Use::Anywhere);
    std::unique_ptr<llvm::Module> pick = pick_module(context, *any, needs, request.supported);
    for (llvm::Function& function : *pick) function.setUWTableKind(llvm::UWTableKind::Async);
    optimise(*pick, *any);
    link(*module, std::move(pick));
  }
  if (several) {
    link(*module, told_module(request, context, *any));
    for (const std::string& name : request.run) {
      llvm::Function& dispatch = add_dispatch(*module, name, needs.size(), request.supported, CELLC_NO_PROCESSOR);
      dispatch.addFnAttr("target-cpu", any->getTargetCPU());
      for (std::size_t k = 1; k <= needs.size(); ++k)
        module->getFunction(name_for(name, k))->setLinkage(llvm::GlobalValue::InternalLinkage);
    }
  }
  const auto object = emit(*module, several ? *any : *machine, llvm::CodeGenFileType::ObjectFile);
  return {object.begin(), object.end()};
}

bool is_processor(const std::string& cpu) {
  if (cpu == "native") return true;
  initialise_target();
  const std::string triple = llvm::sys::getProcessTriple();
  std::string problem;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, problem);
  return target && knows_processor(*target, triple, cpu);
}

int target_vector_bits(const std::string& cpu) { return vector_bits(*target_machine(cpu, Use::Elsewhere)); }

std::string llvm_version() {
  unsigned major = 0, minor = 0, patch = 0;
  LLVMGetVersion(&major, &minor, &patch);  // of the library that is loaded, not of the headers
  return fmt::format("LLVM {}.{}.{}", major, minor, patch);
}

int host_vector_bits(const std::string& cpu) {
  if (cpu != "native") return vector_bits(*target_machine(cpu));
  return vector_bits(llvm::Triple(llvm::sys::getProcessTriple()),
                     [](const char* name) { return host_features().lookup(name); });
}

std::string host_cpu_name() {
  static const std::string name = llvm::sys::getHostCPUName().str();
  return name;
}

}  // namespace cellc
