#include "runtime/build/read_tables.h"

#include <fmt/format.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/Module.h>

#include <cctype>
#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace cellc {
namespace {

class TableReader {
 public:
  TableReader(llvm::Module& module, const std::string& text) : module_(module), text_(text) { next(); }

  llvm::GlobalVariable* read() {
    llvm::GlobalVariable* last = nullptr;
    while (!token_.empty()) last = constant();
    return last;
  }

 private:
  llvm::GlobalVariable* constant() {
    take("static");
    take("const");
    llvm::Type* type = type_named(taken());
    const std::string name = taken();
    const bool array = token_ == "[";
    if (array) take("["), take("]");
    take("=");
    llvm::Constant* value = array ? items(type) : value_of(type);
    take(";");
    return new llvm::GlobalVariable(module_, value->getType(), true, llvm::GlobalValue::PrivateLinkage, value, name);
  }

  llvm::Type* type_named(const std::string& name) {
    llvm::LLVMContext& context = module_.getContext();
    if (name == "int") return llvm::Type::getInt32Ty(context);
    if (name == "int64_t") return llvm::Type::getInt64Ty(context);
    const llvm::GlobalVariable* of = module_.getGlobalVariable("type_" + name);
    if (!of) throw std::logic_error("tables: no type " + name);
    return of->getValueType();
  }

  llvm::Constant* items(llvm::Type* type) {
    std::vector<llvm::Constant*> values;
    take("{");
    while (token_ != "}") {
      values.push_back(value_of(type));
      if (token_ != "}") take(",");
    }
    take("}");
    return llvm::ConstantArray::get(llvm::ArrayType::get(type, values.size()), values);
  }

  llvm::Constant* value_of(llvm::Type* type) {
    if (auto* record = llvm::dyn_cast<llvm::StructType>(type)) {
      std::vector<llvm::Constant*> values;
      take("{");
      for (llvm::Type* element : record->elements()) {
        if (!values.empty()) take(",");
        values.push_back(value_of(element));
      }
      take("}");
      return llvm::ConstantStruct::get(record, values);
    }
    if (type->isPointerTy()) {
      if (token_ == "0") return next(), llvm::Constant::getNullValue(type);
      if (token_ == "&") next();
      const std::string name = taken();
      llvm::GlobalVariable* found = module_.getGlobalVariable(name, true);
      if (!found) throw std::logic_error("tables: no constant " + name);
      return found;
    }
    if (type->isDoubleTy()) return llvm::ConstantFP::get(type, std::strtod(taken().c_str(), nullptr));
    if (!type->isIntegerTy()) throw std::logic_error("tables: a type that tables have not had");
    const bool wrapped = token_ == "INT64_C" || token_ == "UINT64_C";
    if (wrapped) next(), take("(");
    const std::string number = taken();
    if (wrapped) take(")");
    const std::uint64_t bits = number[0] == '-' ? static_cast<std::uint64_t>(std::strtoll(number.c_str(), nullptr, 0))
                                                : std::strtoull(number.c_str(), nullptr, 0);
    return llvm::ConstantInt::get(type, bits);
  }

  void take(const char* expected) {
    if (token_ != expected)
      throw std::logic_error(fmt::format("tables: '{}' where '{}' was expected", token_, expected));
    next();
  }
  std::string taken() {
    std::string token = token_;
    next();
    return token;
  }
  void next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    const std::size_t begin = at_;
    const auto in_word = [&](char c) {
      const char before = at_ > begin ? text_[at_ - 1] : ' ';
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || (c == '-' && at_ == begin) ||
             ((c == '-' || c == '+') && before == 'e');
    };
    while (at_ < text_.size() && in_word(text_[at_])) ++at_;
    if (at_ == begin && at_ < text_.size()) ++at_;
    token_ = text_.substr(begin, at_ - begin);
  }

  llvm::Module& module_;
  const std::string& text_;
  std::size_t at_ = 0;
  std::string token_;  ///< the next one; empty: the end
};

}  // namespace

llvm::GlobalVariable* read_tables(llvm::Module& module, const std::string& text) {
  return TableReader(module, text).read();
}

}  // namespace cellc
