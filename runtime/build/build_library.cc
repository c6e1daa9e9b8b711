#include "runtime/build/build_library.h"

#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>

#include <vector>

#include "runtime/build/call_bitcode.h"
#include "runtime/build/compile_orc.h"
#include "runtime/build/read_tables.h"
#include "runtime/data/errors.h"

namespace cellc {
namespace {

class Library {
 public:
  Library(llvm::Module& module, const LibraryParts& parts) : module_(module), parts_(parts) {
    llvm::GlobalVariable* last = read_tables(module, parts.tables);
    put("cellc_the_cell", module.getGlobalVariable(parts.prefix + "_cell", true));
    put_numbers("cellc_the_room", parts.room);
    put("cellc_kernel_names", words(parts.kernels));
    put("cellc_missing", words(parts.missing));
    put("cellc_foreign", words(parts.foreign));
    put("cellc_unaligned", words(parts.unaligned));
    put("cellc_about", text(parts.about));
    put("cellc_layout", number(parts.layout));
    // Without gradients: functions that nobody can call, and zeros for what they read.
    const LibraryParts::Backward backward = parts.backward.value_or(LibraryParts::Backward{});
    put("cellc_the_backward", parts.backward ? last : nothing("cellc_the_backward"));
    put_numbers("cellc_the_backward_room", backward.room);
    put("cellc_backward_missing", words(backward.missing));
    put("cellc_backward_foreign", words(backward.foreign));
    put("cellc_backward_unaligned", words(backward.unaligned));
    put("cellc_backward_layout", number(backward.layout));
    llvm::GlobalVariable* image = text(parts.image);  // of PTX the zero is the end
    image->setAlignment(llvm::Align(64));
    put("cellc_image", image);
    for (llvm::GlobalVariable& global : llvm::make_early_inc_range(module.globals()))
      if (global.getName().starts_with("type_")) global.eraseFromParent();
    name_functions();
  }

  std::vector<std::string> exported;

 private:
  llvm::LLVMContext& context() const { return module_.getContext(); }

  llvm::GlobalVariable* constant(llvm::Constant* value) {
    return new llvm::GlobalVariable(module_, value->getType(), true, llvm::GlobalValue::PrivateLinkage, value);
  }
  llvm::GlobalVariable* text(const std::string& of) {
    return constant(llvm::ConstantDataArray::getString(context(), of));
  }
  llvm::GlobalVariable* words(const std::vector<std::string>& texts) {
    std::vector<llvm::Constant*> places;
    for (const std::string& of : texts) places.push_back(text(of));
    return constant(
        llvm::ConstantArray::get(llvm::ArrayType::get(llvm::PointerType::getUnqual(context()), places.size()), places));
  }
  std::vector<llvm::Constant*> numbers(const std::vector<int>& of) const {
    std::vector<llvm::Constant*> values;
    for (const int n : of)
      values.push_back(llvm::ConstantInt::get(llvm::Type::getInt32Ty(context()), static_cast<std::uint64_t>(n)));
    return values;
  }

  llvm::GlobalVariable* number(std::int64_t n) {
    return constant(llvm::ConstantInt::get(llvm::Type::getInt64Ty(context()), static_cast<std::uint64_t>(n)));
  }
  llvm::GlobalVariable* nothing(const char* declared) {
    return constant(llvm::Constant::getNullValue(module_.getGlobalVariable(declared)->getValueType()));
  }
  void put_numbers(const char* declared, const std::vector<int>& of) {
    auto* type = llvm::cast<llvm::StructType>(module_.getGlobalVariable(declared)->getValueType());
    put(declared, of.empty() ? nothing(declared) : constant(llvm::ConstantStruct::get(type, numbers(of))));
  }

  void put(const char* declared, llvm::GlobalVariable* value) {
    llvm::GlobalVariable* global = module_.getGlobalVariable(declared);
    global->replaceAllUsesWith(value);
    global->eraseFromParent();
  }

  void name_functions() {
    for (llvm::Function& function : module_) {
      if (function.isDeclaration()) continue;
      // What the compiler noted of its own target; how arguments are passed stays.
      function.setAttributes(function.getAttributes().removeFnAttributes(context()));
      llvm::StringRef rest = function.getName();
      if (!rest.consume_front("cellc_cell_")) continue;
      if (!parts_.backward && rest.starts_with("backward")) {
        function.setLinkage(llvm::GlobalValue::InternalLinkage);
        continue;
      }
      exported.push_back(parts_.prefix + "_" + rest.str());
      function.setName(exported.back());
    }
  }

  llvm::Module& module_;
  const LibraryParts& parts_;
};

}  // namespace

std::string compile_library(const LibraryParts& parts) {
  llvm::LLVMContext context;
  auto code = llvm::parseBitcodeFile(llvm::MemoryBufferRef(library_bitcode(), "gpu_library"), context);
  if (!code) throw DeviceError("LLVM rejects the code of libraries: " + llvm::toString(code.takeError()));
  if (llvm::NamedMDNode* flags = (*code)->getModuleFlagsMetadata()) flags->eraseFromParent();
  const Library library(**code, parts);
  std::string text;
  llvm::raw_string_ostream stream(text);
  (*code)->print(stream, nullptr);
  stream.flush();
  // Whoever has such a card has a processor of the last ten years.
  const bool x86 = llvm::Triple(llvm::sys::getProcessTriple()).isX86();
  ObjectRequest request;
  request.parts.push_back({x86 ? "x86-64-v2" : "generic", {text}});
  request.run = library.exported;
  return compile_object(request);
}

}  // namespace cellc
