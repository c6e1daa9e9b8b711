// Instructions: arithmetic, memory, conversions.
//
// No fast-math flags: NaN, infinities and signed zeros mean what IEEE says. A product and a sum are one instruction
// where sum_with_product() says so, and nowhere else.
#include <bit>
#include <stdexcept>

#include "compiler/codegen_llvm/emit_llvm_kernel.h"
#include "compiler/codegen_llvm/emit_llvm_text.h"

namespace cellc {

namespace {

std::string repeated(const std::string& element, int times) {
  std::string text = "<";
  for (int i = 0; i < times; ++i) text += (i ? ", " : "") + element;
  return text + ">";
}

}  // namespace

std::string KernelEmitter::vector_type(const std::string& element) const {
  return lanes_ == 1 ? element : fmt::format("<{} x {}>", lanes_, element);
}

/// How intrinsics name the current type.
std::string KernelEmitter::suffix() const {
  return lanes_ == 1 ? fmt::format("f{}", element_bits()) : fmt::format("v{}f{}", lanes_, element_bits());
}

std::string KernelEmitter::constant(double value) const {
  if (!f64_) value = static_cast<float>(value);
  if (lanes_ > 1 && std::bit_cast<std::uint64_t>(value) == 0) return "zeroinitializer";
  const std::string text = fmt::format("0x{:016X}", std::bit_cast<std::uint64_t>(value));
  return lanes_ == 1 ? text : repeated(scalar_type() + " " + text, lanes_);
}

std::string KernelEmitter::iota(const std::string& element_type) const {
  std::string text = "<";
  for (int i = 0; i < lanes_; ++i) text += fmt::format("{}{} {}", i ? ", " : "", element_type, i);
  return text + ">";
}

std::string KernelEmitter::splat(const std::string& element_type, const std::string& scalar) {
  const std::string one = fresh(), all = fresh();
  const std::string vector = vector_type(element_type);
  line("{} = insertelement {} poison, {} {}, i64 0", one, vector, element_type, scalar);
  line("{} = shufflevector {} {}, {} poison, {} zeroinitializer", all, vector, one, vector, vector_type("i32"));
  return all;
}

std::string KernelEmitter::arithmetic(const char* instruction, const std::string& a, const std::string& b) {
  const std::string r = fresh();
  line("{} = {} {} {}, {}", r, instruction, type(), a, b);
  return r;
}

/// a*b + c, rounded once where the processor has an instruction for it, and twice by every kernel where it has none:
/// llvm.fma would be made of a dozen others there.
std::string KernelEmitter::multiply_add(const std::string& a, const std::string& b, const std::string& c) {
  const std::string r = fresh();
  line("{} = call {} @llvm.fmuladd.{}({} {}, {} {}, {} {})", r, type(), suffix(), type(), a, type(), b, type(), c);
  return r;
}

std::string KernelEmitter::negated(const std::string& a) {
  const std::string r = fresh();
  line("{} = fneg {} {}", r, type(), a);
  return r;
}

std::string KernelEmitter::compare(const char* predicate, const std::string& a, const std::string& b) {
  const std::string r = fresh();
  line("{} = fcmp {} {} {}, {}", r, predicate, type(), a, b);
  return r;
}

std::string KernelEmitter::select(const std::string& condition, const std::string& yes, const std::string& no) {
  const std::string r = fresh();
  line("{} = select {} {}, {} {}, {} {}", r, vector_type("i1"), condition, type(), yes, type(), no);
  return r;
}

/// Minimum or maximum that is NaN where an operand is: a where a wins or is NaN, else b.
std::string KernelEmitter::pick_extreme(bool largest, const std::string& a, const std::string& b) {
  const std::string wins = compare(largest ? "ogt" : "olt", a, b), nan = compare("uno", a, a), either = fresh();
  line("{} = or {} {}, {}", either, vector_type("i1"), wins, nan);
  return select(either, a, b);
}

std::string KernelEmitter::elementwise(Op op, const std::vector<std::string>& args) {
  const auto intrinsic = [&](const char* name) {
    const std::string r = fresh();
    line("{} = call {} @llvm.{}.{}({} {})", r, type(), name, suffix(), type(), args[0]);
    return r;
  };
  const auto flag = [&](const char* predicate) {
    return select(compare(predicate, args[0], args[1]), constant(1), constant(0));
  };
  switch (op) {
    case Op::Add:
      return arithmetic("fadd", args[0], args[1]);
    case Op::Sub:
      return arithmetic("fsub", args[0], args[1]);
    case Op::Mul:
      return arithmetic("fmul", args[0], args[1]);
    case Op::Div:
      return arithmetic("fdiv", args[0], args[1]);
    case Op::Square:
      return arithmetic("fmul", args[0], args[0]);
    case Op::Neg:
      return negated(args[0]);
    case Op::Sqrt:
      return intrinsic("sqrt");
    case Op::Abs:
      return intrinsic("fabs");
    case Op::Relu:
      return select(compare("olt", args[0], constant(0)), constant(0), args[0]);
    case Op::Min:
      return pick_extreme(false, args[0], args[1]);
    case Op::Max:
      return pick_extreme(true, args[0], args[1]);
    case Op::Clip:
      return pick_extreme(false, pick_extreme(true, args[0], args[1]), args[2]);
    case Op::Sign: {
      // The argument itself where it is neither: ±0 and NaN.
      const std::string negative = select(compare("olt", args[0], constant(0)), constant(-1), args[0]);
      return select(compare("ogt", args[0], constant(0)), constant(1), negative);
    }
    case Op::Lt:
      return flag("olt");
    case Op::Le:
      return flag("ole");
    case Op::Gt:
      return flag("ogt");
    case Op::Ge:
      return flag("oge");
    case Op::Eq:
      return flag("oeq");
    case Op::Ne:
      return flag("une");
    case Op::Where:
      return select(compare("une", args[0], constant(0)), args[1], args[2]);
    case Op::StopGradient:
      break;                     // the plan has none
#define CELLC_LLVM_Inline(Name)  // above
#define CELLC_LLVM_Function(Name) case Op::Name:
#define CELLC_OP(Name, text, arity, slope, values, cost, bits, zero, range, llvm, ...) CELLC_LLVM_##llvm(Name)
#include "compiler/graph/ops.def"
      return call(op, args);
#define CELLC_NODE(Name) case Op::Name:
#include "compiler/graph/ops.def"
      break;
  }
  throw std::logic_error(fmt::format("emit: no code for {}", op_name(op)));
}

/// Of a function of llvm_math.
std::string KernelEmitter::call(Op op, const std::vector<std::string>& args) {
  functions_.insert({op, f64_, lanes_});
  std::string list;
  for (const std::string& a : args) list += (list.empty() ? "" : ", ") + type() + " " + a;
  const std::string r = fresh();
  line("{} = call {} {}({})", r, type(), llvm_math::function_name(op, f64_, lanes_), list);
  return r;
}

/// Sum or maximum of the lanes, by halves.
std::string KernelEmitter::fold_lanes(Op op, std::string vector) {
  const int lanes = lanes_;
  for (int half = lanes / 2; half >= 1; half /= 2) {
    std::string places = "<";
    for (int i = 0; i < lanes; ++i) {
      places += fmt::format("{}i32 {}", i ? ", " : "", i < half ? fmt::format("{}", i + half) : "poison");
    }
    places += ">";
    const std::string upper = fresh();
    line("{} = shufflevector {} {}, {} poison, {} {}", upper, type(), vector, type(), vector_type("i32"), places);
    vector = op == Op::ReduceSum ? arithmetic("fadd", vector, upper) : pick_extreme(true, vector, upper);
  }
  const std::string r = fresh();
  line("{} = extractelement {} {}, i64 0", r, type(), vector);
  return r;
}

// Memory ---------------------------------------------------------------------------------------------

bool KernelEmitter::stored_narrow(const Home& home) const {
  return plan_.options.narrow_storage &&
         (home.place == Place::Input || home.place == Place::Out || home.place == Place::StateRow);
}

std::string KernelEmitter::storage_type(const Home& home) const { return stored_narrow(home) ? "i16" : scalar_type(); }

/// Distance between neighbours along dimension `place`, in entries.
std::string KernelEmitter::stride(const Home& home, std::size_t place) {
  return length_of({home.dims.begin() + static_cast<std::ptrdiff_t>(place) + 1, home.dims.end()});
}

/// Distance between lanes, in entries: a repeated axis (a diagonal) steps along several dimensions.
std::string KernelEmitter::lane_stride(const Reference& r) {
  std::string sum;
  for (std::size_t i = 0; i < r.index.size(); ++i) {
    if (!r.index[i].is_axis() || r.index[i].axis != vector_axis_) continue;
    const std::string s = stride(*r.home, i);
    if (sum.empty()) {
      sum = s;
    } else {
      const std::string both = fresh("stride");
      fmt::format_to(std::back_inserter(entry_), "  {} = add i64 {}, {}\n", both, sum, s);
      sum = both;
    }
  }
  return sum;
}

/// 16 bits to f32, exactly.
std::string KernelEmitter::widen(const std::string& raw) {
  const std::string r = fresh();
  if (options_.storage == Storage::F16) {
    const std::string half = fresh();
    line("{} = bitcast {} {} to {}", half, vector_type("i16"), raw, vector_type("half"));
    line("{} = fpext {} {} to {}", r, vector_type("half"), half, type());
    return r;
  }
  const std::string bits = fresh(), high = fresh();
  line("{} = zext {} {} to {}", bits, vector_type("i16"), raw, vector_type("i32"));
  line("{} = shl {} {}, {}", high, vector_type("i32"), bits, lanes_ == 1 ? "16" : repeated("i32 16", lanes_));
  line("{} = bitcast {} {} to {}", r, vector_type("i32"), high, type());
  return r;
}

/// f32 to 16 bits, to nearest even. bf16 by integer arithmetic: the instructions that some processors
/// have for it flush subnormals, and others would call a library.
std::string KernelEmitter::narrow(const std::string& value) {
  const std::string r = fresh();
  if (options_.storage == Storage::F16) {
    const std::string half = fresh();
    line("{} = fptrunc {} {} to {}", half, type(), value, vector_type("half"));
    line("{} = bitcast {} {} to {}", r, vector_type("half"), half, vector_type("i16"));
    return r;
  }
  const std::string words = vector_type("i32");
  const auto number = [&](std::uint32_t n) {
    return lanes_ == 1 ? fmt::format("{}", n) : repeated(fmt::format("i32 {}", n), lanes_);
  };
  const std::string bits = fresh(), high = fresh(), odd = fresh(), bias = fresh(), rounded = fresh(), quiet = fresh(),
                    chosen = fresh(), upper = fresh();
  line("{} = bitcast {} {} to {}", bits, type(), value, words);
  line("{} = lshr {} {}, {}", high, words, bits, number(16));
  line("{} = and {} {}, {}", odd, words, high, number(1));
  line("{} = add {} {}, {}", bias, words, odd, number(0x7fff));
  line("{} = add {} {}, {}", rounded, words, bits, bias);
  line("{} = or {} {}, {}", quiet, words, bits, number(0x400000));
  const std::string nan = compare("uno", value, value);
  line("{} = select {} {}, {} {}, {} {}", chosen, vector_type("i1"), nan, words, quiet, words, rounded);
  line("{} = lshr {} {}, {}", upper, words, chosen, number(16));
  line("{} = trunc {} {} to {}", r, words, upper, vector_type("i16"));
  return r;
}

std::string KernelEmitter::load(const Home& home, const std::string& pointer, bool lanes, bool contiguous,
                                const std::string& stride, const std::string& mask) {
  const std::string element = storage_type(home);
  const bool is_narrow = stored_narrow(home);
  const int bytes = is_narrow ? 2 : element_bits() / 8;
  const std::string r = fresh();
  const int lanes_here = lanes_;
  if (!lanes) lanes_ = 1;
  const std::string wanted = vector_type(element);
  const std::string kind = is_narrow ? fmt::format("v{}i16", lanes_) : suffix();
  const std::string all = mask.empty() ? repeated("i1 true", lanes_) : mask;
  if (!lanes || (contiguous && mask.empty())) {
    line("{} = load {}, ptr {}, align {}", r, wanted, pointer, bytes);
  } else if (contiguous) {
    line("{} = call {} @llvm.masked.load.{}.p0(ptr {}, i32 {}, {} {}, {} zeroinitializer)", r, wanted, kind, pointer,
         bytes, vector_type("i1"), all, wanted);
  } else {
    const std::string step = splat("i64", stride), offsets = fresh(), places = fresh();
    line("{} = mul {} {}, {}", offsets, vector_type("i64"), step, iota("i64"));
    line("{} = getelementptr {}, ptr {}, {} {}", places, element, pointer, vector_type("i64"), offsets);
    line("{} = call {} @llvm.masked.gather.{}.v{}p0({} {}, i32 {}, {} {}, {} zeroinitializer)", r, wanted, kind, lanes_,
         vector_type("ptr"), places, bytes, vector_type("i1"), all, wanted);
  }
  const std::string result = is_narrow ? widen(r) : r;
  lanes_ = lanes_here;
  return result;
}

void KernelEmitter::store(const Home& home, const std::string& pointer, bool lanes, bool contiguous,
                          const std::string& stride, const std::string& mask, const std::string& value) {
  const std::string element = storage_type(home);
  const bool is_narrow = stored_narrow(home);
  const int bytes = is_narrow ? 2 : element_bits() / 8;
  const std::string what = is_narrow ? narrow(value) : value;
  const std::string kind = is_narrow ? fmt::format("v{}i16", lanes_) : suffix();
  const std::string given = vector_type(element);
  const std::string all = mask.empty() ? repeated("i1 true", lanes_) : mask;
  if (!lanes || (contiguous && mask.empty())) {
    line("store {} {}, ptr {}, align {}", given, what, pointer, bytes);
  } else if (contiguous) {
    line("call void @llvm.masked.store.{}.p0({} {}, ptr {}, i32 {}, {} {})", kind, given, what, pointer, bytes,
         vector_type("i1"), all);
  } else {
    const std::string step = splat("i64", stride), offsets = fresh(), places = fresh();
    line("{} = mul {} {}, {}", offsets, vector_type("i64"), step, iota("i64"));
    line("{} = getelementptr {}, ptr {}, {} {}", places, element, pointer, vector_type("i64"), offsets);
    line("call void @llvm.masked.scatter.{}.v{}p0({} {}, {} {}, i32 {}, {} {})", kind, lanes_, given, what,
         vector_type("ptr"), places, bytes, vector_type("i1"), all);
  }
}

}  // namespace cellc
