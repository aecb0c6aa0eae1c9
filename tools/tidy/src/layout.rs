//! The layout in bytes of the on-disk structs: what each `format.rs` declares, worked out from its text.
//!
//! Rules it relies on: such a struct is `repr(C)` and made of little-endian zerocopy integers, bytes, arrays and
//! other such structs, all of alignment 1, so that offsets are plain sums.

use crate::modules::RustFile;
use std::collections::BTreeMap;
use syn::visit::Visit;

/// How deep types and constants may lean on each other; deeper is a circle.
const DEPTH_MAX: u32 = 24;

/// A field with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    /// Bytes before it.
    pub offset: u128,
    /// Bytes it takes.
    pub size: u128,
    /// Its name.
    pub name: String,
}

/// The struct's crate and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TypeId {
    /// The crate's folder name.
    pub krate: String,
    /// The type's name.
    pub name: String,
}

/// An on-disk struct of some `format.rs`.
#[derive(Debug)]
pub(crate) struct FormatStruct {
    /// Whose it is.
    pub id: TypeId,
    /// The file that declares it.
    pub path: String,
    /// The line of its name.
    pub line: usize,
}

enum Shape {
    Struct(Vec<(String, syn::Type)>),
    Alias(Box<syn::Type>),
    Fixed(u128),
}

/// All types and constants of the house that a layout may need.
#[derive(Default)]
pub(crate) struct Types {
    shapes: BTreeMap<TypeId, Shape>,
    constants: BTreeMap<TypeId, syn::Expr>,
    renames: BTreeMap<TypeId, String>,
    /// The structs that the documents have to describe.
    pub formats: Vec<FormatStruct>,
}

impl Types {
    /// Gathers from the files that ship.
    pub(crate) fn read(files: &[RustFile]) -> Self {
        let mut types = Self::default();
        for file in files.iter().filter(|file| !file.all_test) {
            let Ok(syntax) = syn::parse_file(&file.text) else { continue };
            let is_format = file.path.ends_with("/format.rs") || file.path.contains("/format/");
            Gather { types: &mut types, file, is_format }.visit_file(&syntax);
        }
        types
    }

    /// The fields of a struct with their places, and its size.
    pub(crate) fn layout(&self, id: &TypeId) -> Result<(Vec<Field>, u128), String> {
        let Some(Shape::Struct(members)) = self.shapes.get(id) else {
            return Err(format!("no struct {}", id.name));
        };
        let mut fields = Vec::new();
        let mut offset = 0;
        for (name, kind) in members {
            let size = self.size(&id.krate, kind, 0).map_err(|why| format!("field {name}: {why}"))?;
            fields.push(Field { offset, size, name: name.clone() });
            offset += size;
        }
        Ok((fields, offset))
    }

    /// What a name means in a crate: its own first, else the only one in the house.
    fn find<'a, T>(map: &'a BTreeMap<TypeId, T>, krate: &str, name: &str) -> Option<(&'a TypeId, &'a T)> {
        let own = TypeId { krate: krate.to_owned(), name: name.to_owned() };
        if let Some(found) = map.get_key_value(&own) {
            return Some(found);
        }
        let mut others = map.iter().filter(|(id, _)| id.name == name);
        let first = others.next()?;
        others.next().is_none().then_some(first)
    }

    fn size(&self, krate: &str, kind: &syn::Type, depth: u32) -> Result<u128, String> {
        if depth > DEPTH_MAX {
            return Err("its type leans on itself".to_owned());
        }
        match kind {
            syn::Type::Array(array) => {
                let element = self.size(krate, &array.elem, depth + 1)?;
                let count = self.value(krate, &array.len, depth + 1)?;
                element.checked_mul(count).ok_or_else(|| "its size overflows".to_owned())
            }
            syn::Type::Paren(inner) => self.size(krate, &inner.elem, depth + 1),
            syn::Type::Tuple(tuple) if tuple.elems.is_empty() => Ok(0),
            syn::Type::Path(path) => {
                let name =
                    path.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
                self.named_size(krate, &name, depth)
            }
            _ => Err("its type has no fixed layout".to_owned()),
        }
    }

    fn named_size(&self, krate: &str, name: &str, depth: u32) -> Result<u128, String> {
        let own = TypeId { krate: krate.to_owned(), name: name.to_owned() };
        let name = self.renames.get(&own).map_or(name, String::as_str);
        match Self::find(&self.shapes, krate, name) {
            Some((id, Shape::Struct(members))) => {
                members.iter().try_fold(0, |sum, (_, kind)| Ok(sum + self.size(&id.krate, kind, depth + 1)?))
            }
            Some((id, Shape::Alias(kind))) => self.size(&id.krate, kind, depth + 1),
            Some((_, Shape::Fixed(size))) => Ok(*size),
            None => primitive(name),
        }
    }

    /// The value of a constant expression: what array lengths are made of.
    fn value(&self, krate: &str, expression: &syn::Expr, depth: u32) -> Result<u128, String> {
        let unclear = || "an array's length is not a sum of constants".to_owned();
        if depth > DEPTH_MAX {
            return Err(unclear());
        }
        match expression {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. }) => {
                number.base10_parse().map_err(|_| unclear())
            }
            syn::Expr::Paren(inner) => self.value(krate, &inner.expr, depth + 1),
            syn::Expr::Group(inner) => self.value(krate, &inner.expr, depth + 1),
            syn::Expr::Cast(inner) => self.value(krate, &inner.expr, depth + 1),
            syn::Expr::Binary(binary) => {
                let left = self.value(krate, &binary.left, depth + 1)?;
                let right = self.value(krate, &binary.right, depth + 1)?;
                calculate(&binary.op, left, right).ok_or_else(unclear)
            }
            syn::Expr::Path(path) => {
                let name =
                    path.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
                let (id, value) =
                    Self::find(&self.constants, krate, &name).ok_or_else(|| format!("no constant {name}"))?;
                self.value(&id.krate, value, depth + 1)
            }
            syn::Expr::Call(call) => {
                let syn::Expr::Path(path) = &*call.func else { return Err(unclear()) };
                let last = path
                    .path
                    .segments
                    .last()
                    .filter(|segment| segment.ident == "size_of")
                    .ok_or_else(unclear)?;
                let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else {
                    return Err(unclear());
                };
                let Some(syn::GenericArgument::Type(kind)) = arguments.args.first() else {
                    return Err(unclear());
                };
                self.size(krate, kind, depth + 1)
            }
            _ => Err(unclear()),
        }
    }
}

fn calculate(operator: &syn::BinOp, left: u128, right: u128) -> Option<u128> {
    match operator {
        syn::BinOp::Add(_) => left.checked_add(right),
        syn::BinOp::Sub(_) => left.checked_sub(right),
        syn::BinOp::Mul(_) => left.checked_mul(right),
        syn::BinOp::Div(_) => left.checked_div(right),
        syn::BinOp::Rem(_) => left.checked_rem(right),
        syn::BinOp::Shl(_) => left.checked_shl(u32::try_from(right).ok()?),
        _ => None,
    }
}

fn primitive(name: &str) -> Result<u128, String> {
    match name {
        "u8" | "i8" => Ok(1),
        "U16" | "I16" => Ok(2),
        "U32" | "I32" => Ok(4),
        "U64" | "I64" => Ok(8),
        "U128" | "I128" => Ok(16),
        "PhantomData" => Ok(0),
        "u16" | "u32" | "u64" | "u128" | "usize" | "i16" | "i32" | "i64" | "i128" | "isize" => Err(format!(
            "{name} has the host's byte order and alignment; use zerocopy's {}",
            name.to_uppercase()
        )),
        _ => Err(format!("no type {name} with a known layout")),
    }
}

struct Gather<'a> {
    types: &'a mut Types,
    file: &'a RustFile,
    is_format: bool,
}

impl Gather<'_> {
    fn id(&self, name: &syn::Ident) -> TypeId {
        TypeId { krate: self.file.krate.clone(), name: name.to_string() }
    }

    fn ships(&self, name: &syn::Ident) -> bool {
        self.file.ships(name.span().start().line)
    }
}

/// Whether the item's `repr` holds this word.
fn has_repr(attributes: &[syn::Attribute], word: &str) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("repr")).any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        list.tokens.to_string().split(|c: char| !c.is_alphanumeric()).any(|found| found == word)
    })
}

impl<'ast> Visit<'ast> for Gather<'_> {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let is_c = has_repr(&item.attrs, "C");
        if !self.ships(&item.ident) || !is_c && !has_repr(&item.attrs, "transparent") {
            return;
        }
        let id = self.id(&item.ident);
        if is_c && self.is_format {
            let (path, line) = (self.file.path.clone(), item.ident.span().start().line);
            self.types.formats.push(FormatStruct { id: id.clone(), path, line });
        }
        let name = |(at, field): (usize, &syn::Field)| {
            let name = field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
            (name, field.ty.clone())
        };
        let members = item.fields.iter().enumerate().map(name).collect();
        self.types.shapes.insert(id, Shape::Struct(members));
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if self.ships(&item.ident) && has_repr(&item.attrs, "u8") {
            let id = self.id(&item.ident);
            self.types.shapes.insert(id, Shape::Fixed(1));
        }
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        // Generic aliases such as `Result<T>` have no size of their own.
        if self.ships(&item.ident) && item.generics.params.is_empty() {
            let id = self.id(&item.ident);
            self.types.shapes.insert(id, Shape::Alias(item.ty.clone()));
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        if self.ships(&item.ident) {
            let id = self.id(&item.ident);
            self.types.constants.insert(id, (*item.expr).clone());
        }
    }

    fn visit_use_rename(&mut self, item: &'ast syn::UseRename) {
        if self.is_format {
            let id = self.id(&item.rename);
            self.types.renames.insert(id, item.ident.to_string());
        }
    }
}
