"""Expressions that rows are grouped by, offered to the scan as Catalyst has them.

Spark offers an aggregate to a source only if it can write the expressions of GROUP BY in a small
language of its own. That has no `date_trunc` and no `window`, and it leaves out time zones: those
of a view or of an older DataFrame may be others than the session's. So just before scans are
planned a rule wraps such an expression of an aggregate over one of our tables into a function of
its columns. Its canonical name is the expression's JSON, and what that leaves out: by which mode
each node fails or wraps around. What the scan does not take is unwrapped by a second rule at the
end of the optimizer, so that nothing which runs ever has a wrapper in it.

Both rules are compiled by Janino; without it aggregates over expressions are Spark's.
"""

from __future__ import annotations

import functools
import logging
import secrets
from typing import Any

from indextables.spark.bridge.jvm.handles import JavaObject, Jvm

logger = logging.getLogger(__name__)

WRAPPER = "indextables_group"
"""The name of the function that an expression is wrapped into."""

_SOURCE = """
package indextables;

import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.ApplyFunctionExpression;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataType;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

public class GROUPS extends AbstractFunction1 {
    public final Rule restore = new Restore();
    private final Set names;

    public GROUPS(Set names) {
        this.names = names;
    }

    public Rule restore() {
        return this.restore;
    }

    public Object apply(Object session) {
        return new Wrap(this, (org.apache.spark.sql.classic.SparkSession) session);
    }

    static Seq seq(List items) {
        return CollectionConverters.asScala(items).toSeq();
    }

    public static class Wrapped implements ScalarFunction {
        final Expression bound;
        final String json;
        final DataType[] types;

        Wrapped(Expression bound, DataType[] types) {
            this.bound = bound;
            StringBuilder modes = new StringBuilder();
            addModes(bound, modes);
            this.json = "[" + bound.toJSON() + ",[" + modes.substring(1) + "]]";
            this.types = types;
        }

        private static void addModes(Expression one, StringBuilder modes) {
            String mode = "";
            try {
                mode = one.getClass().getMethod("evalMode", new Class[0])
                    .invoke(one, new Object[0]).toString();
            } catch (Exception none) {
                mode = "";
            }
            modes.append(",\\"").append(mode).append("\\"");
            Iterator children = one.children().iterator();
            while (children.hasNext()) {
                addModes((Expression) children.next(), modes);
            }
        }

        public DataType[] inputTypes() { return this.types; }
        public DataType resultType() { return this.bound.dataType(); }
        public boolean isResultNullable() { return this.bound.nullable(); }
        public boolean isDeterministic() { return true; }
        public String name() { return "WRAPPER"; }
        public String canonicalName() { return this.json; }
        public Object produceResult(InternalRow input) { return this.bound.eval(input); }
        public int hashCode() { return this.json.hashCode(); }
        public boolean equals(Object other) {
            return other instanceof Wrapped && ((Wrapped) other).json.equals(this.json);
        }
    }

    public static class Wrap extends Rule {
        private final GROUPS groups;
        private final org.apache.spark.sql.classic.SparkSession session;

        Wrap(GROUPS groups, org.apache.spark.sql.classic.SparkSession session) {
            this.groups = groups;
            this.session = session;
        }

        public TreeNode apply(TreeNode plan) {
            if (!this.session.experimental().extraOptimizations().contains(this.groups.restore)) {
                return plan;
            }
            return plan.transformDown(new Aggregates(this.groups.names));
        }
    }

    public static class Aggregates extends AbstractPartialFunction {
        private final Set names;

        Aggregates(Set names) {
            this.names = names;
        }

        public boolean isDefinedAt(Object node) {
            return node instanceof Aggregate;
        }

        public Object applyOrElse(Object node, Function1 otherwise) {
            if (!(node instanceof Aggregate) || !isOurs((Aggregate) node)) {
                return otherwise.apply(node);
            }
            Aggregate aggregate = (Aggregate) node;
            Wrapping all = new Wrapping(this.names);
            Set attributes = new HashSet();
            Iterator groups = aggregate.groupingExpressions().iterator();
            while (groups.hasNext()) {
                Expression group = (Expression) groups.next();
                if (group instanceof Attribute) {
                    attributes.add(Long.valueOf(((Attribute) group).exprId().id()));
                } else {
                    all.add(group);
                }
            }
            TreeNode changed = aggregate;
            if (!all.wrapped.isEmpty()) {
                changed = (TreeNode) aggregate.mapExpressions(all);
            }
            if (aggregate.child() instanceof Project && !attributes.isEmpty()) {
                List children = new ArrayList();
                Function1 aliases = new Aliases(this.names, attributes);
                children.add(((Project) aggregate.child()).mapExpressions(aliases));
                changed = (TreeNode) changed.withNewChildren(seq(children));
            }
            return changed;
        }

        private static boolean isOurs(Aggregate aggregate) {
            LogicalPlan below = aggregate.child();
            while (below instanceof Project || below instanceof Filter) {
                below = (LogicalPlan) below.children().head();
            }
            return below instanceof DataSourceV2Relation
                && Proxy.isProxyClass(((DataSourceV2Relation) below).table().getClass());
        }
    }

    public static class Aliases extends AbstractFunction1 {
        private final Set names;
        private final Set wanted;

        Aliases(Set names, Set wanted) {
            this.names = names;
            this.wanted = wanted;
        }

        public Object apply(Object expression) {
            if (expression instanceof Alias
                && this.wanted.contains(Long.valueOf(((Alias) expression).exprId().id()))) {
                Alias alias = (Alias) expression;
                Expression inner = alias.child();
                if (Wrapping.canBe(inner, this.names)) {
                    List children = new ArrayList();
                    children.add(Wrapping.wrapped(inner));
                    return alias.withNewChildren(seq(children));
                }
            }
            return expression;
        }
    }

    public static class Wrapping extends AbstractFunction1 {
        final List originals = new ArrayList();
        final List wrapped = new ArrayList();
        private final Set names;

        Wrapping(Set names) {
            this.names = names;
        }

        void add(Expression group) {
            if (canBe(group, this.names)) {
                this.originals.add(group);
                this.wrapped.add(wrapped(group));
            }
        }

        public Object apply(Object expression) {
            return ((Expression) expression).transformDown(new Replacing(this));
        }

        static boolean canBe(Expression group, Set names) {
            return !(group instanceof Attribute)
                && group.deterministic()
                && !group.foldable()
                && areAll(group, names);
        }

        private static boolean areAll(Expression one, Set names) {
            if (!names.contains(one.getClass().getSimpleName())) {
                return false;
            }
            Iterator children = one.children().iterator();
            while (children.hasNext()) {
                if (!areAll((Expression) children.next(), names)) {
                    return false;
                }
            }
            return true;
        }

        static Expression wrapped(Expression group) {
            Binding binding = new Binding();
            Expression bound = (Expression) group.transformDown(binding);
            DataType[] types = new DataType[binding.attributes.size()];
            for (int i = 0; i < types.length; i++) {
                types[i] = ((Expression) binding.attributes.get(i)).dataType();
            }
            return new ApplyFunctionExpression(new Wrapped(bound, types), seq(binding.attributes));
        }
    }

    public static class Replacing extends AbstractPartialFunction {
        private final Wrapping all;

        Replacing(Wrapping all) {
            this.all = all;
        }

        private int place(Object node) {
            for (int i = 0; i < this.all.originals.size(); i++) {
                if (((Expression) this.all.originals.get(i)).semanticEquals((Expression) node)) {
                    return i;
                }
            }
            return -1;
        }

        public boolean isDefinedAt(Object node) {
            return place(node) >= 0;
        }

        public Object applyOrElse(Object node, Function1 otherwise) {
            int place = place(node);
            return place >= 0 ? this.all.wrapped.get(place) : otherwise.apply(node);
        }
    }

    public static class Binding extends AbstractPartialFunction {
        final List attributes = new ArrayList();

        public boolean isDefinedAt(Object node) {
            return node instanceof AttributeReference;
        }

        public Object applyOrElse(Object node, Function1 otherwise) {
            if (!(node instanceof AttributeReference)) {
                return otherwise.apply(node);
            }
            Expression attribute = (Expression) node;
            int place = 0;
            while (place < this.attributes.size()
                && !((Expression) this.attributes.get(place)).semanticEquals(attribute)) {
                place++;
            }
            if (place == this.attributes.size()) {
                this.attributes.add(attribute);
            }
            return new BoundReference(place, attribute.dataType(), attribute.nullable());
        }
    }

    public static class Restore extends Rule {
        public TreeNode apply(TreeNode plan) {
            LogicalPlan whole = (LogicalPlan) plan;
            return (TreeNode) whole.transformAllExpressionsWithSubqueries(new Unwrapping());
        }
    }

    public static class Unwrapping extends AbstractPartialFunction {
        public boolean isDefinedAt(Object node) {
            return node instanceof ApplyFunctionExpression
                && ((ApplyFunctionExpression) node).function() instanceof Wrapped;
        }

        public Object applyOrElse(Object node, Function1 otherwise) {
            if (!isDefinedAt(node)) {
                return otherwise.apply(node);
            }
            ApplyFunctionExpression one = (ApplyFunctionExpression) node;
            return ((Wrapped) one.function()).bound.transformDown(new Unbinding(one.children()));
        }
    }

    public static class Unbinding extends AbstractPartialFunction {
        private final Seq children;

        Unbinding(Seq children) {
            this.children = children;
        }

        public boolean isDefinedAt(Object node) {
            return node instanceof BoundReference;
        }

        public Object applyOrElse(Object node, Function1 otherwise) {
            if (!isDefinedAt(node)) {
                return otherwise.apply(node);
            }
            return this.children.apply(((BoundReference) node).ordinal());
        }
    }
}
"""


def offer_groups(java: Jvm, classes: frozenset[str]) -> None:
    """Let aggregates over expressions of these classes reach the scans of a session."""
    try:
        rules, extended = _rules(java.gateway, classes)
        extensions, methods = java.session.extensions(), java.session.experimental()
        if extensions.hashCode() not in extended:  # sessions of one application share them
            extended.add(extensions.hashCode())
            extensions.injectPreCBORule(rules)
        rules_before = methods.extraOptimizations()
        if not rules_before.contains(rules.restore()):
            getattr(methods, "extraOptimizations_$eq")(rules_before.appended(rules.restore()))
    except Exception as error:
        logger.info("Spark computes the groups of expressions: %s", error)


@functools.lru_cache(maxsize=16)
def _rules(gateway: Any, classes: frozenset[str]) -> tuple[JavaObject, set[int]]:
    """What makes the rules in a JVM, and the extensions of sessions that have it."""
    name = f"Groups{secrets.token_hex(8)}"
    compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(
        gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    )
    compiler.cook(_SOURCE.replace("GROUPS", name).replace("WRAPPER", WRAPPER))
    constructor = compiler.getClassLoader().loadClass(f"indextables.{name}").getConstructors()[0]
    arguments = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    arguments[0] = gateway.jvm.java.util.HashSet(list(classes))
    return constructor.newInstance(arguments), set()
